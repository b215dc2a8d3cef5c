// Reader of CIFAR-10's and CIFAR-100's binary version: records of one or two bytes of labels and
// an image of 32 x 32, a plane of 1024 bytes for each of red, green and blue. Format: Krizhevsky's
// page of the data sets (www.cs.toronto.edu/~kriz/cifar.html).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/data/dataset.h"

namespace engine {

enum class CifarKind : uint8_t { cifar10, cifar100 };

/// RGB images, [labels.size(), 32, 32, 3].
struct CifarImages {
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;  ///< of CIFAR-100, the fine ones
};

/// Adds the records of one file, at least one, to `images`. Throws Error("[cifar] NAME: expected
/// ..., got ...") unless they are whole and their labels in [0, 10), or in [0, 20) (coarse) and
/// [0, 100).
void decode_cifar(std::span<const std::byte> bytes, const std::string& name, CifarKind kind,
                  CifarImages& images);

/// data_batch_1.bin to data_batch_5.bin and test_batch.bin, or train.bin and test.bin, in `dir` or
/// in the folder of it that the archive unpacks to.
DatasetSplits load_cifar(const std::string& dir, CifarKind kind, PixelRange range);

}  // namespace engine
