// The meta device: shapes, costs and allocations of a whole training step, and no computation. Its
// memory is addresses that nothing may touch, so a batch of any size is planned in milliseconds.
#pragma once

namespace engine::meta {

/// Makes Device{meta} usable. May be called again.
void register_backend();

}  // namespace engine::meta
