// A data set in one of NumPy's archives (.npz), as Keras, MedMNIST and numpy.savez make them.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "models/data/dataset.h"

namespace engine {

/// Labelled images from the arrays
///   x_train, y_train, x_test, y_test; or train_images, train_labels, test_images, test_labels
///   (`x` and `images`, `y` and `labels`, and the two orders mean the same); or
///   x and y, or images and labels, of which every tenth sample is for the test.
/// Other arrays are left out. Images are [N, H, W], [N, H, W, C] or, as PyTorch has them, [N, C, H,
/// W], where C is 1 or 3; where both could be meant, C is last. Bytes are pixels; other numbers are
/// taken as they are. Both are normalised by the mean and deviation of each channel over the
/// training split, or, for [-1, 1], by the numbers' range there. Labels are whole numbers, [N] or
/// [N, 1], in [0, 65536); the largest one gives the number of classes. Throws Error naming the file
/// and the array. Needs the CPU backend.
DatasetSplits load_npz(const std::string& path, PixelRange range);
/// The same from the bytes of such a file, `name` in errors.
DatasetSplits decode_npz_dataset(std::span<const std::byte> bytes, const std::string& name,
                                 PixelRange range);

}  // namespace engine
