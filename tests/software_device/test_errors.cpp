// What a failure of CUDA, of cuBLASLt or of cuDNN says, and a device that is full: the op that
// needs less memory where there is a way, the message where there is none, and that both leave the
// device usable.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "core/backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/ops.h"
#include "tests/catch.h"
#include "tests/harness.h"
#include "tests/software_device/software_device.h"

namespace engine::software_device {
namespace {

constexpr Device kCuda{DeviceKind::cuda, 0};
constexpr int64_t kMiB = int64_t{1} << 20;

Tensor ones(const Shape& shape) { return full(shape, 1, DType::f32, kCuda); }
CachingAllocator& allocator() { return backend(kCuda).allocator(); }

// The device has this many bytes more than are in use now, with nothing cached.
class Room {
 public:
  explicit Room(int64_t bytes) {
    allocator().release_cache();
    size_t free = 0, total = 0;
    REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
    set_capacity(total - free + static_cast<size_t>(bytes));
  }
  ~Room() { set_capacity(size_t{4} << 30); }
};

// What an op says when the next call of a function fails; and once more, when none does.
std::string error_of_failing(const char* call, const std::function<Tensor()>& op) {
  fail_next(call);
  const std::string text = test::error_of([&] { op(); });
  INFO("after " << call << " failed: " << text);
  const int64_t before = allocator().snapshot().total.allocated;
  CHECK(test::error_of([&] { op().to_vector<float>(); }).empty());
  CHECK(allocator().snapshot().total.allocated == before);
  return text;
}

// The implementation and the scratch bytes of the one event of `op`.
std::pair<std::string, int64_t> ran(const char* op, const std::function<void()>& f) {
  Profiler profiler;
  profiler.begin_step(1, false, true);
  f();
  backend(kCuda).synchronize();
  profiler.end_step();
  for (const Event& e : profiler.recording().events) {
    if (std::string_view(e.op) == op && e.kind == EventKind::op)
      return {e.implementation, e.scratch_bytes};
  }
  return {};
}

}  // namespace

TEST_CASE("software device: a failure names the op, the call, the device and the library's text") {
  REQUIRE(cuda::register_backend());
  const Tensor x = ones({2, 3}), w = ones({4, 3});
  CHECK(error_of_failing("cudaLaunchKernel", [&] { return ops::neg(x); }) ==
        "[neg] cudaLaunchKernel failed on cuda:0: software device: cudaErrorInvalidConfiguration "
        "(cudaErrorInvalidConfiguration)");
  CHECK(error_of_failing("cublasLtMatmul", [&] { return ops::linear(x, w, {}); }) ==
        "[linear] cublasLtMatmul failed on cuda:0: CUBLAS_STATUS_INVALID_VALUE "
        "(CUBLAS_STATUS_INVALID_VALUE)");
  // A product over nothing is a memset.
  CHECK(error_of_failing("cudaMemsetAsync",
                         [] {
                           return ops::matmul(ones({2, 0}), ones({0, 3}));
                         }) ==
        "[matmul] cudaMemsetAsync failed on cuda:0: software device: cudaErrorInvalidValue "
        "(cudaErrorInvalidValue)");
  // Between kernels.
  CHECK(error_of_failing("cudaMemcpyAsync",
                         [] { return test::tensor({1}, {1}, DType::f32, kCuda); }) ==
        "[cuda] cudaMemcpyAsync failed on cuda:0: software device: cudaErrorInvalidValue "
        "(cudaErrorInvalidValue)");
}

TEST_CASE(
    "software device: a kernel that fails is told by the next wait, which says that it was not "
    "it") {
  REQUIRE(cuda::register_backend());
  const Tensor x = ones({2, 3});
  backend(kCuda).synchronize();
  std::vector<float> host(64);
  cuda::launch_kernel(
      +[](float* p) { *p = 1; }, 1, 1, 0, host.data());
  test::check_error([&] { ops::neg(x).to_vector<float>(); },
                    {"[cuda] cudaStreamSynchronize failed on cuda:0: software device: a kernel's "
                     "argument: a host pointer for a device pointer (cudaErrorIllegalAddress); a "
                     "kernel that was launched before has failed",
                     "CUDA_LAUNCH_BLOCKING=1"});
  reset();  // on a GPU the process would have to end
  CHECK(ops::neg(x).to_vector<float>() == std::vector<float>(6, -1));
}

TEST_CASE("software device: a full device gets its cache back before memory is out") {
  REQUIRE(cuda::register_backend());
  ones({16 * kMiB / 4});  // a peak below which the allocator keeps its cache
  const Room room(3 * kMiB);
  ones({2 * kMiB / 4});  // in the cache from now on, and of no use to what comes
  const int64_t reserved = allocator().snapshot().reserved;
  const Tensor fits = ones({11 * kMiB / 4 / 4});
  CHECK(fits.to_vector<float>().back() == 1);
  CHECK(allocator().snapshot().reserved == reserved + 11 * kMiB / 4 - 2 * kMiB);
}

TEST_CASE("software device: out of memory says what was asked, what there is and where") {
  REQUIRE(cuda::register_backend());
  const int32_t block = intern_module_path(intern_module_path(0, "errors"), "expand");
  const Room room(3 * kMiB);
  const int64_t before = allocator().snapshot().total.allocated;
  const Tensor kept = ones({kMiB / 4}), x = ones({1});  // 1 MiB and 512 bytes
  const int64_t used = before + kMiB + 512;
  {
    const ContextScope in_block(&Context::module, block);
    try {
      ops::broadcast_to(x, {3 * kMiB / 4});
      FAIL("3 MiB were given of not quite 2");
    } catch (const OutOfMemoryError& error) {
      CHECK(error.what() ==
            fmt::format("[broadcast_to] in module errors.expand out of memory: requested 3145728 "
                        "bytes for activation; allocated {}, reserved {}, free {} bytes. Use a "
                        "smaller batch or a smaller input",
                        used, used, 2 * kMiB - 512));
    }
  }
  CHECK(allocator().snapshot().total.allocated == used);
  CHECK(ops::broadcast_to(x, {3 * kMiB / 8}).to_vector<float>().back() == 1);  // half fits
}

TEST_CASE(
    "software device: a step that is out of memory leaves none taken, and a smaller batch runs") {
  REQUIRE(cuda::register_backend());
  Tensor w = ones({4, 3, 3, 1});
  w.set_requires_grad(true);
  const auto step = [&](int64_t batch) {
    ops::sum(ops::relu(ops::conv2d(ones({batch, 16, 16, 1}), w, {}, {}))).backward();
    const float sum = w.grad().to_vector<float>()[0];
    w.zero_grad();
    return sum;
  };
  // An image has 14x14 results of 4 channels: 3 KiB, once for each op and each gradient.
  CHECK(step(1) == 196);
  backend(kCuda).synchronize();
  const Room room(2 * kMiB);
  const int64_t before = allocator().snapshot().total.allocated;
  for (int round = 0; round < 2; ++round) {
    test::check_error([&] { step(400); }, {"[", "out of memory: requested"});
    CHECK(allocator().snapshot().total.allocated == before);
    CHECK(step(40) == 40 * 196);
  }
}

#ifdef ENGINE_HAS_CUDNN
TEST_CASE("software device: an error of cuDNN names the op, the call and cuDNN's text") {
  REQUIRE(cuda::register_backend());
  const Tensor x = ones({1, 5, 5, 2}), w = ones({3, 3, 3, 2});
  CHECK(error_of_failing("cudnnBackendExecute", [&] { return ops::conv2d(x, w, {}, {}); }) ==
        "[conv2d] cudnnBackendExecute failed on cuda:0: told to fail (CUDNN_STATUS_BAD_PARAM)");
}

TEST_CASE("software device: a convolution takes the workspace that there is") {
  REQUIRE(cuda::register_backend());
  const Tensor x = ones({1, 8, 8, 2}), w = ones({3, 3, 3, 2});  // the result: 6x6x3 floats
  const auto conv = [&](int64_t room_bytes) {
    const Room room(room_bytes);
    return ran("conv2d", [&] {
      CHECK(ops::conv2d(x, w, {}, {}).to_vector<float>() == std::vector<float>(108, 18));
    });
  };
  using Ran = std::pair<std::string, int64_t>;
  CHECK(conv(kMiB) == Ran{"cudnn", 65536});
  CHECK(conv(65536) == Ran{"cudnn", 4096});  // the result takes 512 of them
  // 36 patches of 18 floats, rounded up, and no workspace for the product.
  CHECK(conv(4096) == Ran{"own:im2col", 3072});
  CHECK(conv(kMiB) == Ran{"cudnn", 65536});
}
#endif

TEST_CASE("software device: a product takes no workspace where there is none") {
  REQUIRE(cuda::register_backend());
  const Tensor a = ones({4, 5}), b = ones({5, 6});
  const auto product = [&](int64_t room_bytes) {
    const Room room(room_bytes);
    return ran("matmul",
               [&] { CHECK(ops::matmul(a, b).to_vector<float>() == std::vector<float>(24, 5)); });
  };
  using Ran = std::pair<std::string, int64_t>;
  CHECK(product(kMiB) == Ran{"cublaslt", 4096});
  CHECK(product(1024) == Ran{"cublaslt", 0});
}

TEST_CASE("software device: patches are made in smaller pieces where there is less memory") {
  REQUIRE(cuda::register_backend());
  // 62x62 patches of 16 channels by 9 taps: 2.1 MiB. A shape that no other test has, as the refusal
  // is kept.
  const Tensor x = ones({1, 64, 64, 16}), w = ones({2, 3, 3, 16});
  refuse_convolutions(true);
  const auto conv = [&](int64_t room_bytes) {
    const Room room(room_bytes);
    return ran("conv2d", [&] {
      CHECK(ops::conv2d(x, w, {}, {}).to_vector<float>() == std::vector<float>(7688, 144));
    });
  };
  using Ran = std::pair<std::string, int64_t>;
  // 576 bytes a patch: all 3844 are 2214144, a multiple of 64 KiB less 40192; a piece of 1 MiB has
  // 1820 patches, 1048320 bytes.
  CHECK(conv(8 * kMiB) == Ran{"own:im2col", 2228224 + 4096});
  CHECK(conv(3 * kMiB / 2) == Ran{"own:im2col", 1048576 + 4096});
  refuse_convolutions(false);
}

}  // namespace engine::software_device
