#include "models/data/folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "models/data/derived.h"
#include "models/data/image.h"
#include "models/data/labelled.h"
#include "models/data/resize.h"

namespace engine {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPart = "folder";

// Of the images of the ILSVRC 2012 training set, as torchvision's networks take them.
const std::vector<double> kMean{0.485, 0.456, 0.406}, kDeviation{0.229, 0.224, 0.225};

using Resize = Image (*)(const Image&, int64_t, int64_t);

struct Files {
  std::vector<std::string> paths;
  std::vector<int64_t> labels;
  int64_t classes = 0;
};

class ImageFiles : public Dataset {
 public:
  ImageFiles(Files files, int64_t height, int64_t width, Resize resize, const Normalization& n)
      : files_(std::move(files)), height_(height), width_(width), resize_(resize), table_(n) {}

  int64_t size() const override { return static_cast<int64_t>(files_.paths.size()); }
  SampleTensor input() const override { return {{height_, width_, 3}, DType::f32}; }
  int64_t classes() const override { return files_.classes; }

  void read(int64_t index, const RandomStream&, void* input, void* target) const override {
    const auto i = static_cast<size_t>(index);
    const Image image = resize_(read_image(files_.paths[i]), height_, width_);
    auto* to = static_cast<float*>(input);
    for (size_t value = 0; value < image.pixels.size(); ++value)
      to[value] = table_(value % 3, image.pixels[value]);
    *static_cast<int64_t*>(target) = files_.labels[i];
  }

 private:
  Files files_;
  int64_t height_, width_;
  Resize resize_;
  PixelTable table_;
};

void check_listed(const std::error_code& error, const std::string& folder) {
  check(!error, kPart, "{}: expected a folder that can be read, got '{}'", folder, error.message());
}

bool is_image(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

// All images in a folder and those in it, in the order of their paths; at least one.
std::vector<std::string> images_of(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (is_image(at->path()) && at->is_regular_file()) paths.push_back(at->path().string());
  }
  check_listed(error, folder);
  check(!paths.empty(), kPart, "{}: expected a folder with .png, .jpg or .jpeg files, got none",
        folder);
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The names of the folders in a folder, in order; at least one.
std::vector<std::string> classes_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (at->is_directory() && !name.starts_with('.')) names.push_back(name);
  }
  check_listed(error, folder);
  check(!names.empty(), kPart, "{}: expected a folder for each class, got none", folder);
  std::sort(names.begin(), names.end());
  return names;
}

Files labelled_files(const std::string& folder, const std::vector<std::string>& classes) {
  Files files;
  files.classes = static_cast<int64_t>(classes.size());
  for (const std::string& name : classes_of(folder)) {
    const auto found = std::find(classes.begin(), classes.end(), name);
    check(found != classes.end(), kPart,
          "{}/{}: expected a class that is in train too, got one "
          "that is not",
          folder, name);
    for (std::string& path : images_of(folder + '/' + name)) {
      files.paths.push_back(std::move(path));
      files.labels.push_back(found - classes.begin());
    }
  }
  return files;
}

std::unique_ptr<Dataset> unpaired(const std::string& a, const std::string& b, int64_t height,
                                  int64_t width) {
  Files files{images_of(a), {}, 2};
  std::vector<int64_t> first(files.paths.size());
  for (std::string& path : images_of(b)) files.paths.push_back(std::move(path));
  std::vector<int64_t> second(files.paths.size() - first.size());
  std::iota(first.begin(), first.end(), int64_t{0});
  std::iota(second.begin(), second.end(), static_cast<int64_t>(first.size()));
  files.labels.resize(files.paths.size());  // not asked for
  return unpaired_images(
      std::make_unique<ImageFiles>(std::move(files), height, width, resize,
                                   normalization(PixelRange::symmetric, kMean, kDeviation)),
      std::move(first), std::move(second));
}

}  // namespace

DatasetSplits load_image_folder(const std::string& dir, int64_t height, int64_t width,
                                PixelRange range) {
  std::error_code ignored;
  const std::string train = dir + "/train", test = dir + "/test", val = dir + "/val";
  const bool has_test = fs::is_directory(test, ignored);
  check(fs::is_directory(train, ignored) && (has_test || fs::is_directory(val, ignored)), kPart,
        "{}: expected a folder with folders train and test (or val), and in each a folder for each "
        "class, got none",
        dir);
  const std::vector<std::string> classes = classes_of(train);
  const Normalization n = normalization(range, kMean, kDeviation);
  const auto make = [&](const std::string& folder) {
    return std::make_unique<ImageFiles>(labelled_files(folder, classes), height, width,
                                        resize_and_crop, n);
  };
  return {make(train), make(has_test ? test : val)};
}

DatasetSplits load_unpaired_folders(const std::string& dir, int64_t height, int64_t width) {
  return {unpaired(dir + "/trainA", dir + "/trainB", height, width),
          unpaired(dir + "/testA", dir + "/testB", height, width)};
}

}  // namespace engine
