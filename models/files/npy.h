// Reader of NumPy's arrays: .npy files (versions 1 to 3) and .npz archives of them. Formats:
// numpy.lib.format, and PKWARE's APPNOTE for the archive.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace engine {

/// The array as a tensor on the CPU, row-major whatever its order in the file. Little-endian f4, i4
/// and i8 and u1 keep their type; f2 and f8 become f32, u2 becomes i32. Throws Error("[npy] FILE:
/// expected ..., got
/// ...").
Tensor read_npy(const std::string& path);
/// The arrays of an archive, stored or deflated, with their names, in the archive's order. Throws
/// Error("[npy] FILE: NAME.npy: expected ..., got ...").
std::vector<std::pair<std::string, Tensor>> read_npz(const std::string& path);
/// The same from the bytes of such a file, `name` in errors.
Tensor decode_npy(std::span<const std::byte> bytes, const std::string& name);
std::vector<std::pair<std::string, Tensor>> decode_npz(std::span<const std::byte> bytes,
                                                       const std::string& name);

/// Writes `tensor` (of any dtype but bf16, which NumPy lacks) as a .npy file, through SafeFile.
void write_npy(const std::string& path, const Tensor& tensor);

}  // namespace engine
