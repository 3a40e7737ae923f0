// Plots as a picture of their own.
#pragma once

#include <string>
#include <vector>

#include "lab/html/chart.h"

namespace sluice::lab {

// The text of an .svg file with the lanes one below the other, each under its title, and the kinds of the first as a legend.
// Right on light and on dark.
std::string lanes_picture(const std::string& title, const std::vector<Lanes>& parts);

}  // namespace sluice::lab
