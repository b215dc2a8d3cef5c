#include "models/data/fit.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.h"

namespace engine {

namespace {

constexpr int64_t kWidestBorder = 4;  // both sides together: 28 to 32

// Where an output row or column comes from: (1 - share) of `low` and share of `high`; -1: zero.
struct Source {
  int64_t low, high;
  float share;
};

std::vector<Source> bordered(int64_t from, int64_t to) {
  const int64_t before = (to - from) / 2;
  std::vector<Source> sources;
  for (int64_t i = 0; i < to; ++i) {
    const int64_t at = i - before;
    const bool inside = at >= 0 && at < from;
    sources.push_back({inside ? at : -1, inside ? at : -1, 0});
  }
  return sources;
}

std::vector<Source> interpolated(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  std::vector<Source> sources;
  for (int64_t i = 0; i < to; ++i) {
    const double at = std::max(0.0, (static_cast<double>(i) + 0.5) * scale - 0.5);
    const int64_t low = std::min(static_cast<int64_t>(at), from - 1);
    sources.push_back(
        {low, std::min(low + 1, from - 1), static_cast<float>(at - static_cast<double>(low))});
  }
  return sources;
}

class FittedDataset : public Dataset {
 public:
  FittedDataset(std::unique_ptr<Dataset> data, const Shape& shape)
      : data_(std::move(data)), from_(data_->input().shape), to_(shape) {
    const auto may_border = [&](int axis) {
      return to_[axis] >= from_[axis] && to_[axis] - from_[axis] <= kWidestBorder;
    };
    const auto sources = may_border(0) && may_border(1) ? bordered : interpolated;
    rows_ = sources(from_[0], to_[0]);
    columns_ = sources(from_[1], to_[1]);
  }

  int64_t size() const override { return data_->size(); }
  SampleTensor input() const override { return {to_, DType::f32}; }
  SampleTensor target() const override { return data_->target(); }
  int64_t classes() const override { return data_->classes(); }

  void read(int64_t index, const RandomStream& random, void* input, void* target) const override {
    auto* image = static_cast<float*>(input);
    std::vector<float> source(static_cast<size_t>(from_.numel()));
    data_->read(index, random, source.data(), target);
    for (const Source& row : rows_) {
      for (const Source& column : columns_) {
        for (int64_t c = 0; c < to_[2]; ++c) {
          *image++ = row.low < 0 || column.low < 0 ? 0.f : blend(source.data(), row, column, c);
        }
      }
    }
  }

 private:
  float blend(const float* source, const Source& row, const Source& column, int64_t c) const {
    const int64_t channel = from_[2] == 1 ? 0 : c;
    const auto pixel = [&](int64_t h, int64_t w) {
      return source[(h * from_[1] + w) * from_[2] + channel];
    };
    const auto along_row = [&](int64_t h) {
      return (1 - column.share) * pixel(h, column.low) + column.share * pixel(h, column.high);
    };
    return (1 - row.share) * along_row(row.low) + row.share * along_row(row.high);
  }

  std::unique_ptr<Dataset> data_;
  Shape from_, to_;
  std::vector<Source> rows_, columns_;
};

}  // namespace

std::unique_ptr<Dataset> fit_images(std::unique_ptr<Dataset> data, const Shape& shape) {
  check(shape.rank() == 3 && shape.numel() >= 1, "dataset",
        "expected an image shape [H, W, C] of at least one value, got {}", to_string(shape));
  const Shape own = data->input().shape;
  if (own == shape) return data;
  check(own[2] == shape[2] || own[2] == 1, "dataset",
        "expected images of {} channels, or of 1, got {}", shape[2], to_string(own));
  return std::make_unique<FittedDataset>(std::move(data), shape);
}

}  // namespace engine
