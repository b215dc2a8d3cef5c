#include "layers/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace engine {

double Schedule::factor(int64_t step) const {
  if (step < warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const int64_t after = step - warmup_steps;
  const int64_t length = std::max<int64_t>(1, total_steps - warmup_steps);
  const double progress = std::min(1.0, static_cast<double>(after) / static_cast<double>(length));
  switch (kind) {
    case ScheduleKind::constant:
      return 1.0;
    case ScheduleKind::step:
      return step_size > 0 ? std::pow(0.1, static_cast<double>(after / step_size)) : 1.0;
    case ScheduleKind::cosine:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    case ScheduleKind::linear:
      return std::min(1.0, 2 * (1 - progress));
  }
  return 1.0;
}

}  // namespace engine
