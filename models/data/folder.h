// Data sets that are folders of image files, PNG or JPEG, decoded when they are read, so in the
// loader's threads. A file that cannot be decoded ends the run with its name.
#pragma once

#include <cstdint>
#include <string>

#include "models/data/dataset.h"

namespace engine {

/// `dir`/train and `dir`/test (or, as ImageNet has it, `dir`/val), each with a folder for each
/// class, whose images may lie in folders again; what else is there than .png, .jpg and .jpeg is
/// left out. The classes are those of train, by their names' order. Images become RGB, f32 [height,
/// width, 3], by resize_and_crop, normalised by ImageNet's means and deviations. Throws Error
/// naming the folder or file.
DatasetSplits load_image_folder(const std::string& dir, int64_t height, int64_t width,
                                PixelRange range);

/// `dir`/trainA, trainB, testA and testB, as CycleGAN's data sets have them: two kinds of images,
/// unpaired (models/data/derived.h), scaled to height x width, in [-1, 1].
DatasetSplits load_unpaired_folders(const std::string& dir, int64_t height, int64_t width);

}  // namespace engine
