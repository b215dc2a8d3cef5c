#include "models/data/labelled.h"

#include <utility>

namespace engine {

namespace {

class Floats {
 public:
  explicit Floats(Normalization n) : n_(std::move(n)) {}
  float operator()(size_t channel, float value) const {
    return static_cast<float>((value - n_.mean[channel]) / n_.deviation[channel]);
  }

 private:
  Normalization n_;
};

template <class Value, class Normalize>
class LabelledImages : public Dataset {
 public:
  LabelledImages(const Shape& image, std::vector<Value> values, std::vector<int64_t> labels,
                 int64_t classes, const Normalization& normalization)
      : shape_(image),
        values_(std::move(values)),
        labels_(std::move(labels)),
        classes_(classes),
        normalize_(normalization) {}

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  SampleTensor input() const override { return {shape_, DType::f32}; }
  int64_t classes() const override { return classes_; }

  void read(int64_t index, const RandomStream&, void* input, void* target) const override {
    auto* image = static_cast<float*>(input);
    const auto channels = static_cast<size_t>(shape_[2]);
    const int64_t pixels = shape_[0] * shape_[1];
    const auto* source = values_.data() + index * shape_.numel();
    for (int64_t i = 0; i < pixels; ++i) {
      for (size_t c = 0; c < channels; ++c) *image++ = normalize_(c, *source++);
    }
    *static_cast<int64_t*>(target) = labels_[static_cast<size_t>(index)];
  }

 private:
  Shape shape_;
  std::vector<Value> values_;
  std::vector<int64_t> labels_;
  int64_t classes_;
  Normalize normalize_;
};

}  // namespace

PixelTable::PixelTable(const Normalization& n) : tables_(n.mean.size()) {
  for (size_t c = 0; c < tables_.size(); ++c) {
    for (size_t v = 0; v < 256; ++v) {
      tables_[c][v] =
          static_cast<float>((static_cast<double>(v) / 255.0 - n.mean[c]) / n.deviation[c]);
    }
  }
}

Normalization normalization(PixelRange range, const std::vector<double>& mean,
                            const std::vector<double>& deviation) {
  if (range == PixelRange::standard) return {mean, deviation};
  return {std::vector<double>(mean.size(), 0.5), std::vector<double>(mean.size(), 0.5)};
}

std::unique_ptr<Dataset> labelled_images(const Shape& image, std::vector<uint8_t> values,
                                         std::vector<int64_t> labels, int64_t classes,
                                         const Normalization& normalization) {
  return std::make_unique<LabelledImages<uint8_t, PixelTable>>(
      image, std::move(values), std::move(labels), classes, normalization);
}

std::unique_ptr<Dataset> labelled_images(const Shape& image, std::vector<float> values,
                                         std::vector<int64_t> labels, int64_t classes,
                                         const Normalization& normalization) {
  return std::make_unique<LabelledImages<float, Floats>>(image, std::move(values),
                                                         std::move(labels), classes, normalization);
}

}  // namespace engine
