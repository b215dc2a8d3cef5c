// The CPU device as the tests see it: its kernels behind a wall that sees what they must not do.
//
// Every kernel is entered through the backend's table, so a table of wrappers checks them all. In a
// GuardScope a kernel runs on copies of its tensors, each between guard bytes, and
//  - fresh outputs hold NaN patterns: an element that is not written shows;
//  - guards hold NaN patterns: a read past an input shows in the values; a write past any tensor is
//    seen in the bytes;
//  - an input that the op does not declare as mutated must come out as it went in.
// Scratch memory is not guarded; AddressSanitizer sees past its blocks. Outside of a GuardScope the
// kernels run as they are. Memory comes from malloc and is filled with NaN patterns when it is new.
#pragma once

#include <string>
#include <vector>

#include "core/backend.h"
#include "core/op.h"

namespace engine::test {

/// Makes the guarded CPU the CPU device, unless there is one already (a second call does nothing).
void register_guarded_cpu();

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
