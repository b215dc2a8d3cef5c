// Images at another size, as Pillow and torchvision make it: bilinear, where an image shrinks over
// all the pixels that a new one covers (antialias), each pass rounded to 8 bits.
#pragma once

#include <cstdint>

#include "models/data/image.h"

namespace engine {

/// To exactly this size, whatever the proportions were.
Image resize(const Image& image, int64_t height, int64_t width);

/// torchvision's usual transform for evaluation, for networks of images of height x width: the
/// image is scaled until it covers 8/7 of both (a shorter side of 256 for 224 x 224), and the
/// middle is cut out. An image of exactly this size is taken as it is.
Image resize_and_crop(const Image& image, int64_t height, int64_t width);

}  // namespace engine
