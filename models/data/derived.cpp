#include "models/data/derived.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "models/data/fit.h"

namespace engine {

namespace {

class SegmentedDataset : public Dataset {
 public:
  explicit SegmentedDataset(std::unique_ptr<Dataset> data)
      : data_(std::move(data)), shape_(data_->input().shape) {}

  int64_t size() const override { return data_->size(); }
  SampleTensor input() const override { return data_->input(); }
  SampleTensor target() const override { return {{shape_[0], shape_[1]}, DType::i64}; }
  int64_t classes() const override { return data_->classes() + 1; }

  void read(int64_t index, const RandomStream& random, void* input, void* target) const override {
    int64_t label = 0;
    data_->read(index, random, input, &label);
    const auto* image = static_cast<const float*>(input);
    auto* mask = static_cast<int64_t*>(target);
    const int64_t channels = shape_[2], pixels = shape_[0] * shape_[1];
    std::vector<float> means(static_cast<size_t>(pixels));
    for (int64_t i = 0; i < pixels * channels; ++i)
      means[static_cast<size_t>(i / channels)] += image[i] / static_cast<float>(channels);
    const auto [darkest, brightest] = std::minmax_element(means.begin(), means.end());
    const float middle = 0.5f * (*darkest + *brightest);
    for (size_t i = 0; i < means.size(); ++i) mask[i] = means[i] > middle ? 1 + label : 0;
  }

 private:
  std::unique_ptr<Dataset> data_;
  Shape shape_;
};

class UnpairedDataset : public Dataset {
 public:
  UnpairedDataset(std::unique_ptr<Dataset> data, std::vector<int64_t> a, std::vector<int64_t> b)
      : data_(std::move(data)), a_(std::move(a)), b_(std::move(b)) {}

  int64_t size() const override { return static_cast<int64_t>(std::max(a_.size(), b_.size())); }
  SampleTensor input() const override { return data_->input(); }
  SampleTensor target() const override { return data_->input(); }
  int64_t classes() const override { return 2; }

  void read(int64_t index, const RandomStream& random, void* input, void* target) const override {
    const uint32_t other = philox(random.seed, random.offset)[0];
    read_image(a_[static_cast<size_t>(index) % a_.size()], random, input);
    read_image(b_[other % b_.size()], random, target);
  }

 private:
  void read_image(int64_t index, const RandomStream& random, void* to) const {
    int64_t label = 0;
    data_->read(index, random, to, &label);
    auto* image = static_cast<float*>(to);
    const int64_t values = data_->input().shape.numel();
    for (int64_t i = 0; i < values; ++i) image[i] = std::clamp(image[i], -1.f, 1.f);
  }

  std::unique_ptr<Dataset> data_;
  std::vector<int64_t> a_, b_;  // the samples of each class
};

}  // namespace

std::unique_ptr<Dataset> segment_images(std::unique_ptr<Dataset> data) {
  return std::make_unique<SegmentedDataset>(std::move(data));
}

std::unique_ptr<Dataset> unpaired_images(std::unique_ptr<Dataset> data, int64_t a, int64_t b,
                                         const Shape& shape) {
  std::vector<int64_t> of_a, of_b;
  std::vector<float> image(static_cast<size_t>(data->input().shape.numel()));
  for (int64_t i = 0; i < data->size(); ++i) {  // before they are made to fit, which takes longer
    int64_t label = 0;
    data->read(i, {}, image.data(), &label);
    if (label == a) of_a.push_back(i);
    if (label == b) of_b.push_back(i);
  }
  check(!of_a.empty() && !of_b.empty(), "dataset",
        "expected images of the classes {} and {}, got {} and {} of them", a, b, of_a.size(),
        of_b.size());
  return unpaired_images(fit_images(std::move(data), shape), std::move(of_a), std::move(of_b));
}

std::unique_ptr<Dataset> unpaired_images(std::unique_ptr<Dataset> data, std::vector<int64_t> a,
                                         std::vector<int64_t> b) {
  return std::make_unique<UnpairedDataset>(std::move(data), std::move(a), std::move(b));
}

}  // namespace engine
