// Learning-rate schedules: what the rate of the first step is multiplied by later.
#pragma once

#include <cstdint>

namespace engine {

enum class ScheduleKind : uint8_t { constant, step, cosine, linear };

struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  int64_t warmup_steps = 0;  ///< rises linearly: step i (from 0) gets (i + 1) / warmup_steps
  /// Of the run; cosine reaches 0 there, and so does linear, which begins to fall half-way.
  int64_t total_steps = 0;
  int64_t step_size = 0;  ///< step: the factor drops to a tenth every step_size steps after warm-up

  /// The factor for optimizer step `step`, from 0.
  double factor(int64_t step) const;
};

}  // namespace engine
