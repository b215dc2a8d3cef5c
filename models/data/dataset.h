// Labelled images for training: what every data set looks like to the loader.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/shape.h"

namespace engine {

/// Samples that can be read in any order, from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of samples; at least 1.
  virtual int64_t size() const = 0;
  /// [H, W, C].
  virtual Shape image_shape() const = 0;
  /// Labels are in [0, classes()).
  virtual int64_t classes() const = 0;
  /// Writes one normalised image (image_shape().numel() floats) and its label.
  virtual void read(int64_t index, float* image, int64_t* label) const = 0;
};

struct DatasetSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
};

/// What is known of a data set before it is loaded: for --list-datasets.
struct DatasetInfo {
  std::string name;
  std::string description;
  std::string default_dir;  ///< empty when no package installs it
  bool from_files = true;   ///< false: made up, no folder is read
};
const std::vector<DatasetInfo>& dataset_list();

/// Loads a data set by name: "fashion-mnist" and "mnist" (IDX files, plain or .gz, in `dir`, or
/// where Debian's package puts them when `dir` is empty), or "synthetic" (made-up images of
/// `image_shape` and labels in [0, 10), a function of `seed`). Throws Error naming the file, or the
/// known names.
DatasetSplits load_dataset(const std::string& name, const std::string& dir,
                           const Shape& image_shape, uint64_t seed);

}  // namespace engine
