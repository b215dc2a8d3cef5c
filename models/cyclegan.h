// CycleGAN: Zhu et al., "Unpaired Image-to-Image Translation using Cycle-Consistent Adversarial
// Networks", 2017: two generators between two kinds of images, A and B, and for each kind a
// discriminator. Sizes, numbering and initial values are those of the published implementation, so
// the state dicts of its networks load into generator_a() and so on.
#pragma once

#include <memory>

#include "models/model.h"

namespace engine {

/// Images f32 [N, H, W, C], in [-1, 1] by the generators' tanh; H and W are multiples of 4, and at
/// least 24 for the discriminators.
///
/// Options: input; width of the first layers (64); blocks, the residual blocks of a generator (9;
/// the paper takes 6 for images of 128 x 128). With the defaults and 3 channels a generator has
/// 11,378,179 parameters and a discriminator 2,764,737.
class CycleGan : public Module {
 public:
  explicit CycleGan(const ModelOptions& options);

  // Children netG_A, netG_B, netD_A, netD_B.
  Module& generator_a() { return *generator_a_; }  ///< A -> B
  Module& generator_b() { return *generator_b_; }  ///< B -> A
  /// Scores [N, h, w, 1] of overlapping 70 x 70 patches, without a sigmoid. `discriminator_a`
  /// judges images of kind B, which generator_a makes; `discriminator_b` those of kind A.
  Module& discriminator_a() { return *discriminator_a_; }
  Module& discriminator_b() { return *discriminator_b_; }

 protected:
  /// generator_a's image.
  Tensor forward(const Tensor& x) override { return (*generator_a_)(x); }

 private:
  std::shared_ptr<Module> generator_a_, generator_b_, discriminator_a_, discriminator_b_;
};

}  // namespace engine
