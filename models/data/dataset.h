// Samples for training: what every data set looks like to the loader.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "core/shape.h"

namespace engine {

/// One tensor of a sample; a batch has an axis more, in front.
struct SampleTensor {
  Shape shape;
  DType dtype = DType::f32;

  int64_t bytes() const { return shape.numel() * static_cast<int64_t>(size_of(dtype)); }
  /// The shape of n of them in a batch.
  Shape batched(int64_t n) const;
  bool operator==(const SampleTensor&) const = default;
};

/// Counters of a sample's random stream. The first half is the data set's, the rest augmentation's.
inline constexpr uint64_t kCountersOfASample = uint64_t{1} << 20;

/// Samples that can be read in any order, from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of samples; at least 1.
  virtual int64_t size() const = 0;
  /// What the network gets: an image f32 [H, W, C], or the numbers of tokens i64 [T].
  virtual SampleTensor input() const = 0;
  /// What it is to answer: a label i64 [] unless another is said, as one for each pixel or token.
  virtual SampleTensor target() const { return {Shape{}, DType::i64}; }
  /// Labels and tokens are in [0, classes()).
  virtual int64_t classes() const = 0;
  /// Writes one sample. Whatever is left to chance in it, as augmentation, is a function of
  /// `random`, which is another one in each epoch.
  virtual void read(int64_t index, const RandomStream& random, void* input, void* target) const = 0;
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
  bool images = true;       ///< labelled images; or
  bool text = false;        ///< tokens: "synthetic" is either
  bool from_files = true;   ///< false: made up, no folder is read
  bool pairs = false;       ///< two kinds of images, unpaired
};
const std::vector<DatasetInfo>& dataset_list();

/// How pixels in [0, 1] become a network's numbers: mean 0 and deviation 1 over the training split,
/// or [-1, 1].
enum class PixelRange : uint8_t { standard, symmetric };

/// Loads a data set by name, from files in `dir`:
///   "fashion-mnist", "mnist"  IDX files, plain or .gz (models/data/idx.h); without `dir` where
///                             Debian's package puts them
///   "cifar10", "cifar100"     the binary version (models/data/cifar.h)
///   "images", "unpaired"      folders of PNG and JPEG files (models/data/folder.h), made as large
///                             as `input`, [H, W, C]
///   "npz"                     `dir` is a NumPy archive (models/data/npz.h)
///   "text", "tokens"          a file, or a folder's files, by bytes; or numbers of tokens
///                             (models/data/text.h); `input` is [T]
///   "synthetic"               made-up images [H, W, C] and labels in [0, 10), or tokens where
///                             `input` is [T], a function of `seed`
/// Throws Error naming the file, or the known names.
DatasetSplits load_dataset(const std::string& name, const std::string& dir, const Shape& input,
                           uint64_t seed, PixelRange range = PixelRange::standard);

}  // namespace engine
