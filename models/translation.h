// CycleGAN's training (Zhu et al., 2017, section 3 and appendix): two generators that must fool two
// discriminators and undo each other's work.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "models/cyclegan.h"
#include "models/task.h"

namespace engine {

/// The last images that a generator made, of which a discriminator sees one now and then instead of
/// the newest (Shrivastava et al., 2017). The first `size` are stored and shown; of the later ones
/// half are shown, half change places with a stored one, which is shown.
class ImagePool {
 public:
  /// For images of this shape, [H, W, C].
  ImagePool(int64_t size, const Shape& image, Device device);
  /// What the discriminator is to see for these new images, [N, H, W, C].
  Tensor exchange(const Tensor& images);
  /// The stored images and, as an i64 on the CPU, how many there are.
  const Tensor& images() const { return images_; }
  const Tensor& count() const { return count_; }

 private:
  Tensor images_, count_;
};

/// Batches of images of kind A (inputs) and B (targets), in [-1, 1]. The first group of parameters
/// is the generators', with the sum of
///   the squared distance of the discriminators' scores of made images from 1 (least squares),
///   10 x the mean |A -> B -> A| and |B -> A -> B| distances (cycle),
///   5 x the mean distances |netG_A(B) - B| and |netG_B(A) - A| (identity);
/// the second is the discriminators', with half the squared distances of their scores from 1 for
/// real images and from 0 for made ones, out of a pool of 50. Evaluation's loss is the mean cycle
/// distance of the test images. The parts are named after the published implementation's.
class TranslationTask : public Task {
 public:
  /// `image`: [H, W, C].
  TranslationTask(CycleGan& model, const Shape& image, Device device);
  std::vector<std::vector<Tensor>> parameter_groups() override;
  std::vector<Loss> forward_backward(size_t group, const Batch& batch, double share) override;
  void evaluate(const Batch& batch, Evaluation& sums) override;
  /// A, netG_A(A), netG_B(netG_A(A)), then B, netG_B(B), netG_A(netG_B(B)).
  std::vector<std::vector<Image>> show(const Batch& batch) override;
  std::vector<std::pair<std::string, Tensor>> state() const override;

 private:
  std::vector<Loss> generators(const Batch& batch, double share);
  std::vector<Loss> discriminators(const Batch& batch, double share);

  CycleGan& model_;
  ImagePool pool_a_, pool_b_;
  Tensor fake_a_, fake_b_;  // what the generators made of this step's batch
};

}  // namespace engine
