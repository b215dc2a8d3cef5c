#include "tools/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace engine::tools {

namespace {

constexpr std::chrono::milliseconds kBetweenDraws{100};
constexpr size_t kWidestBar = 40;

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

/// "0:07", "12:34" or "1:02:03".
std::string clock_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

// "-" for a number that was not measured.
std::string figure(double value, fmt::format_string<double&> format) {
  return std::isfinite(value) ? fmt::format(format, value) : "-";
}

}  // namespace

Progress::Style Progress::style_for_stderr() {
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  return ::isatty(STDERR_FILENO) == 1 && !dumb ? Style::bar : Style::lines;
}

void Progress::on_step(const StepReport& r) {
  switch (style_) {
    case Style::none:
      break;
    case Style::bar:
      shown_ = r;
      draw_bar();
      break;
    case Style::lines: {
      std::string losses = fmt::format("loss {:.4f}", r.loss);
      for (const auto& [name, value] : r.parts) losses += fmt::format(" {} {:.4f}", name, value);
      print(fmt::format("epoch {}/{}  step {}/{}  {}  lr {:.4g}  {} samples/s  {} ms/step\n",
                        r.epoch, epochs_, r.step, r.total_steps, losses, r.lr,
                        figure(r.samples_per_second, "{:.0f}"), figure(r.step_ms, "{:.3g}")));
      break;
    }
  }
}

void Progress::on_eval(const EvalReport& r) {
  if (style_ == Style::none) return;
  clear_bar();
  const std::string accuracy =
      r.accuracy ? fmt::format("  test accuracy {:.2f} %", 100 * *r.accuracy) : "";
  print(fmt::format("epoch {}/{}  step {}  test loss {:.4f}{}  {} s\n", r.epoch, epochs_, r.step,
                    r.loss, accuracy, figure(r.seconds, "{:.1f}")));
}

void Progress::on_progress(int64_t step) {
  if (style_ != Style::bar || !first_step_) return;
  shown_.step = step;
  draw_bar();
}

void Progress::draw_bar() {
  const StepReport& r = shown_;
  const Clock::time_point now = Clock::now();
  if (!first_step_) {
    first_step_ = r.step;
    first_time_ = now;
  }
  if (bar_shown_ && now - last_draw_ < kBetweenDraws) return;
  last_draw_ = now;

  std::string left;
  if (r.step > *first_step_ && std::isfinite(r.step_ms)) {
    const double pace = std::chrono::duration<double>(now - first_time_).count() /
                        static_cast<double>(r.step - *first_step_);
    left = fmt::format("  {} left", clock_text(pace * static_cast<double>(r.total_steps - r.step)));
  }
  const std::string before = fmt::format("epoch {}/{} ", r.epoch, epochs_);
  const std::string after =
      fmt::format(" {}/{}  loss {:.4f}  {} samples/s{}", r.step, r.total_steps, r.loss,
                  figure(r.samples_per_second, "{:.0f}"), left);
  // The last column stays free: some terminals wrap when it is written.
  const size_t width = terminal_width() - 1;
  std::string line = before;
  const size_t taken = before.size() + after.size() + 2;
  if (taken + 5 <= width) {
    const size_t cells = std::min(kWidestBar, width - taken);
    const double share =
        static_cast<double>(r.step) / static_cast<double>(std::max<int64_t>(r.total_steps, 1));
    const size_t full = std::min(cells, static_cast<size_t>(share * static_cast<double>(cells)));
    line += fmt::format("[{:#<{}}{:.<{}}]", "", full, "", cells - full);
  }
  line += after;
  print(fmt::format("\r{}\x1b[K", std::string_view(line).substr(0, width)));
  bar_shown_ = true;
}

void Progress::clear_bar() {
  if (!bar_shown_) return;
  print("\r\x1b[K");
  bar_shown_ = false;
}

}  // namespace engine::tools
