// The devices as the tests see them: their kernels behind a wall that sees what they must not do.
//
// Every kernel is entered through the backend's table, so a table of wrappers checks them all. In a
// GuardScope a kernel runs on copies of its tensors, each between guard bytes, and
//  - fresh outputs hold NaN patterns: an element that is not written shows;
//  - guards hold NaN patterns: a read past an input shows in the values; a write past any tensor is
//    seen in the bytes;
//  - an input that the op does not declare as mutated must come out as it went in.
// On CUDA the software device sees what leaves an allocation, but not what leaves a tensor, whose
// block is rounded up: that takes the guards. Scratch memory is not guarded; AddressSanitizer sees
// past its blocks. Outside of a GuardScope the kernels run as they are. The CPU's memory comes from
// malloc and is filled with NaN patterns when it is new.
#pragma once

#include <string>
#include <vector>

#include "core/backend.h"
#include "core/op.h"

namespace engine::test {

/// Makes the guarded CPU the CPU device and, where there is CUDA, the guarded CUDA device the CUDA
/// device. Once, before any other registration.
void register_guarded();

/// Runs one kernel behind the wall, inside of a GuardScope.
void run_guarded(const Op& op, Kernel kernel, KernelArgs& args);

/// Guards the kernels of this thread for its lifetime.
class GuardScope {
 public:
  GuardScope();
  ~GuardScope();
  GuardScope(const GuardScope&) = delete;
  GuardScope& operator=(const GuardScope&) = delete;

  /// What was seen so far, one line each: "matmul wrote 4 bytes past the end of output 0".
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  std::vector<std::string> violations_;
};

}  // namespace engine::test
