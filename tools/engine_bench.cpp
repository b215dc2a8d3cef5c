// engine-bench: times single ops and says how far they are from what the machine can do. The
// ceilings are measured first: GFLOP/s of a large matrix product, GB/s of a large copy.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "core/backend.h"
#include "core/context.h"
#include "profiler/profiler.h"
#include "tools/bench_cases.h"

namespace engine::tools {

namespace {

struct Measurement {
  double low_us = 0, median_us = 0, high_us = 0;  // quartiles
  double rival_us = 0;                            // median; 0: none
  double copy_us = 0;                             // median of the copies beside it; 0: none
  int runs = 0;
  double gflop = 0;      // of one run
  double gigabytes = 0;  // read and written, each tensor once
  std::string implementation;

  double gflop_per_second() const { return gflop / (median_us * 1e-6); }
  double gigabytes_per_second() const { return gigabytes / (median_us * 1e-6); }
};

double microseconds_of(const std::function<void()>& call) {
  const int64_t begin = host_clock_ns();
  call();
  return static_cast<double>(host_clock_ns() - begin) * 1e-3;
}

double quantile(std::vector<double>& times, double q) {
  std::sort(times.begin(), times.end());
  return times[static_cast<size_t>(q * static_cast<double>(times.size()))];
}

// From here on a case's tensors come from memory, and a large copy is timed after each
// call: how fast memory is changes with time on many machines, and from one piece to the next.
constexpr double kFromMemory = 0.06;  // GB

// Calls until `seconds` have passed, at least five times, after a call that warms up; its rival or
// `copy` follows each. Work and implementation come from the events of one more call. Short calls
// are timed as batches: one alone would be the clock's reading, and on a GPU, which works beside
// the host, the wait for its end.
Measurement measure(const BenchCase& bench, double seconds, Device device,
                    const std::function<void()>& copy = nullptr) {
  const NoGradScope no_grad;
  const std::function<void()> call = bench.prepare(device);
  call();
  backend(device).synchronize();
  Measurement result;
  Profiler profiler;
  profiler.begin_step(1, false, true);
  call();
  backend(device).synchronize();
  profiler.end_step();
  std::set<std::string> implementations;
  for (const Event& event : profiler.recording().events) {
    if (event.kind != EventKind::op) continue;
    result.gflop += static_cast<double>(event.flops) * 1e-9;
    result.gigabytes += static_cast<double>(event.bytes_read + event.bytes_written) * 1e-9;
    implementations.insert(event.implementation);
  }
  for (const std::string& name : implementations) {
    result.implementation += (result.implementation.empty() ? "" : "+") + name;
  }
  const bool on_cpu = device == kCpu;
  const std::function<void()> rival = on_cpu && bench.rival ? bench.rival() : nullptr;
  if (rival) rival();
  const auto timed = [&](const std::function<void()>& what, int64_t calls) {
    const double all = microseconds_of([&] {
      for (int64_t i = 0; i < calls; ++i) what();
      backend(device).synchronize();
    });
    return all / static_cast<double>(calls);
  };
  const double batch_us = on_cpu ? 20 : 1000;
  const int64_t calls =
      std::clamp<int64_t>(static_cast<int64_t>(batch_us / timed(call, 3)), 1, 1000);
  const bool beside_copy = copy && !rival && result.gigabytes > kFromMemory;
  std::vector<double> times, rival_times, copy_times;
  const int64_t end = host_clock_ns() + static_cast<int64_t>(seconds * 1e9);
  while (times.size() < 5 || (host_clock_ns() < end && times.size() < 100000)) {
    times.push_back(timed(call, calls));
    if (rival) rival_times.push_back(timed(rival, calls));
    if (beside_copy) copy_times.push_back(timed(copy, 1));
  }
  result.low_us = quantile(times, 0.25);
  result.median_us = quantile(times, 0.5);
  result.high_us = quantile(times, 0.75);
  if (rival) result.rival_us = quantile(rival_times, 0.5);
  if (beside_copy) result.copy_us = quantile(copy_times, 0.5);
  result.runs = static_cast<int>(times.size());
  return result;
}

const BenchCase& find_case(std::string_view name) {
  const auto& all = bench_cases();
  return *std::find_if(all.begin(), all.end(), [&](const BenchCase& c) { return c.name == name; });
}

int run_ops(const std::string& filter, double seconds, int threads, bool on_cuda) {
  cpu::register_backend();
  if (on_cuda && !cuda::register_backend())
    throw std::runtime_error("--device cuda: " + cuda::unavailable());
  const Device device = on_cuda ? Device{DeviceKind::cuda, 0} : kCpu;
  if (threads > 0) cpu::set_num_threads(threads);
  const double peak =
      measure(find_case("matmul 2048x2048 by 2048x2048"), 2, device).gflop_per_second();
  const Measurement copy = measure(find_case("copy_ 64x1024x256"), 1, device);
  const std::function<void()> copy_again = find_case("copy_ 64x1024x256").prepare(device);
  fmt::print("{}\n", on_cuda ? cuda::description() : cpu::description());
  fmt::print(
      "ceilings, measured: {:.1f} GFLOP/s (matmul 2048x2048 by 2048x2048), {:.1f} GB/s (copy of 64 "
      "MiB)\n\n",
      peak, copy.gigabytes_per_second());
  fmt::print("{:<62}{:>12}{:>12}{:>12}{:>7}{:>9}{:>11}{:>8}{:>11}{:>12}  {}\n", "case", "median us",
             "quartile 1", "quartile 3", "n", "GFLOP/s", "% of peak", "GB/s", "% of copy",
             "% of oneDNN", "implementation");
  int shown = 0;
  for (const BenchCase& bench : bench_cases()) {
    if (bench.name.find(filter) == std::string::npos) continue;
    const Measurement m = measure(bench, seconds, device, copy_again);
    const double copied_per_second =
        m.copy_us > 0 ? copy.gigabytes / (m.copy_us * 1e-6) : copy.gigabytes_per_second();
    fmt::print(
        "{:<62}{:>12.2f}{:>12.2f}{:>12.2f}{:>7}{:>9.1f}{:>11.1f}{:>8.1f}{:>11.1f}{:>12}  {}\n",
        bench.name, m.median_us, m.low_us, m.high_us, m.runs, m.gflop_per_second(),
        100 * m.gflop_per_second() / peak, m.gigabytes_per_second(),
        100 * m.gigabytes_per_second() / copied_per_second,
        m.rival_us > 0 ? fmt::format("{:.1f}", 100 * m.rival_us / m.median_us) : "-",
        m.implementation);
    std::fflush(stdout);
    ++shown;
  }
  if (shown == 0)
    throw std::runtime_error(fmt::format("--filter: no case has '{}' in its name", filter));
  fmt::print(
      "\n1 multiply-add = 2 FLOP. Bytes count each tensor once. % of copy is against copies of 64 "
      "MiB that alternate with the calls; small inputs stay in the caches, are held against the "
      "copy measured first, and may pass 100 %. oneDNN is called directly on the same layouts, "
      "with "
      "convolution weights as it likes them best.\n");
  return 0;
}

}  // namespace

}  // namespace engine::tools

int main(int argc, char** argv) {
  engine::cpu::limit_spinning(argv);
  CLI::App app("Times single ops against the measured ceilings of this machine.", "engine-bench");
  app.require_subcommand(1);
  CLI::App* ops = app.add_subcommand("ops", "Time every op case");
  std::string filter;
  double seconds = 0.3;
  int threads = 0;
  ops->add_option("--filter", filter, "Only the cases whose name holds this text");
  ops->add_option("--seconds", seconds, "Time for each case")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  ops->add_option("--threads", threads, "Threads; default: the CPUs that the process may use")
      ->check(CLI::Range(1, 1024));
  std::string device = "cpu";
  ops->add_option("--device", device, "Where the ops run")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return engine::tools::run_ops(filter, seconds, threads, device == "cuda");
  } catch (const std::exception& error) {
    fmt::print(stderr, "engine-bench: error: {}\n", error.what());
    return 1;
  }
}
