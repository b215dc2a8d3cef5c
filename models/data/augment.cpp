#include "models/data/augment.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"

namespace engine {

namespace {

constexpr int64_t kBorder = 4;
constexpr uint64_t kFirstCounter = kCountersOfASample / 2;

struct Change {
  int64_t down = 0, right = 0;
  bool flip = false;
};

class AugmentedDataset : public Dataset {
 public:
  AugmentedDataset(std::unique_ptr<Dataset> data, Augmentation augmentation)
      : data_(std::move(data)),
        augmentation_(augmentation),
        input_(data_->input()),
        target_(data_->target()) {}

  int64_t size() const override { return data_->size(); }
  SampleTensor input() const override { return input_; }
  SampleTensor target() const override { return target_; }
  int64_t classes() const override { return data_->classes(); }

  void read(int64_t index, const RandomStream& random, void* input, void* target) const override {
    data_->read(index, random, input, target);
    const Change change = draw(random, 0);
    apply(change, static_cast<float*>(input), input_.shape[2]);
    if (target_ == input_)
      apply(draw(random, 1), static_cast<float*>(target), input_.shape[2]);
    else if (target_.shape.rank() == 2)
      apply(change, static_cast<int64_t*>(target), 1);
  }

 private:
  Change draw(const RandomStream& random, uint64_t number) const {
    const auto bits = philox(random.seed, random.offset + kFirstCounter + number);
    Change change;
    if (augmentation_.pad_crop) {
      change.down = static_cast<int64_t>(bits[0] % (2 * kBorder + 1)) - kBorder;
      change.right = static_cast<int64_t>(bits[1] % (2 * kBorder + 1)) - kBorder;
    }
    change.flip = augmentation_.flip && bits[2] >> 31 != 0;
    return change;
  }

  template <class T>
  void apply(const Change& change, T* image, int64_t channels) const {
    const int64_t height = input_.shape[0], width = input_.shape[1];
    const std::vector<T> from(image, image + height * width * channels);
    for (int64_t h = 0; h < height; ++h) {
      for (int64_t w = 0; w < width; ++w, image += channels) {
        const int64_t row = h - change.down;
        const int64_t column = (change.flip ? width - 1 - w : w) - change.right;
        const bool inside = row >= 0 && row < height && column >= 0 && column < width;
        if (inside)
          std::copy_n(from.data() + (row * width + column) * channels, channels, image);
        else
          std::fill_n(image, channels, T{});
      }
    }
  }

  std::unique_ptr<Dataset> data_;
  Augmentation augmentation_;
  SampleTensor input_, target_;
};

}  // namespace

std::unique_ptr<Dataset> augment_images(std::unique_ptr<Dataset> data, Augmentation augmentation) {
  const SampleTensor input = data->input();
  check(input.shape.rank() == 3 && input.dtype == DType::f32, "dataset",
        "expected images f32 [H, W, C] to augment, got {} {}", name(input.dtype), input.shape);
  if (!augmentation.pad_crop && !augmentation.flip) return data;
  return std::make_unique<AugmentedDataset>(std::move(data), augmentation);
}

}  // namespace engine
