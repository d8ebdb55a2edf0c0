#include "tests/accuracy/picture.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace seqpoint::accuracy {
namespace {

constexpr double kPanelWidth = 300, kPanelHeight = 260, kLeft = 52, kTop = 40, kGap = 34,
                 kLegend = 34;
constexpr double kLeastError = 0.0005, kMostError = 0.5;
constexpr double kLeastM = 5, kMostM = 64;
constexpr size_t kMostPanels = 6;

// Colours that differ in lightness too, for those who see fewer of them.
constexpr struct {
  const char* method;
  const char* label;
  const char* colour;
  double width;
} kLines[] = {{"ours", "ours", "#0b5fa5", 2.6},
              {"seqpoint", "SeqPoint (paper)", "#d1495b", 1.8},
              {"equal_mass", "equal mass", "#edae49", 1.6},
              {"stem", "STEM-style", "#66a182", 1.6},
              {"random", "random", "#777777", 1.6},
              {"prior", "prior 50", "#9a6fb0", 1.3},
              {"frequent", "frequent", "#b08968", 1.3},
              {"median", "median", "#5c8a8a", 1.3},
              {"worst", "worst", "#b0b0b0", 1.3}};

double Share(double value, double least, double most) {
  return (std::log(std::clamp(value, least, most)) - std::log(least)) /
         (std::log(most) - std::log(least));
}

}  // namespace

std::string ErrorPicture(absl::Span<const Result> results) {
  std::vector<std::string> files;
  for (const Result& r : results) {
    if (r.protocol != "sampled" || r.verdict != "explained") continue;
    if (std::find(files.begin(), files.end(), r.file) == files.end()) files.push_back(r.file);
  }
  if (files.size() > kMostPanels) files.resize(kMostPanels);
  const size_t columns = std::min<size_t>(3, std::max<size_t>(1, files.size()));
  const size_t rows = (files.size() + columns - 1) / columns;
  const double width = kLeft + static_cast<double>(columns) * (kPanelWidth + kGap);
  const double height = kTop + static_cast<double>(rows) * (kPanelHeight + kTop + 24) + kLegend;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      width, height);
  const auto text = [&](double x, double y, const char* anchor, const std::string& words) {
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                          anchor, words);
  };
  for (size_t f = 0; f < files.size(); ++f) {
    const double left = kLeft + static_cast<double>(f % columns) * (kPanelWidth + kGap);
    const double top = kTop + static_cast<double>(f / columns) * (kPanelHeight + kTop + 24);
    const auto x_of = [&](double m) { return left + Share(m, kLeastM, kMostM) * kPanelWidth; };
    const auto y_of = [&](double e) {
      return top + kPanelHeight - Share(e, kLeastError, kMostError) * kPanelHeight;
    };
    text(left, top - 10, "start", files[f]);
    for (double error : {0.001, 0.01, 0.1}) {
      absl::StrAppendFormat(&svg,
                            "<path d=\"M%.1f %.1fh%.1f\" stroke=\"#dddddd\" fill=\"none\"/>\n",
                            left, y_of(error), kPanelWidth);
      if (f % columns == 0)
        text(left - 6, y_of(error) + 4, "end", absl::StrFormat("%g %%", 100 * error));
    }
    for (double m : {5., 8., 16., 32., 64.}) {
      text(x_of(m), top + kPanelHeight + 16, "middle", absl::StrFormat("%g", m));
    }
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                          "fill=\"none\" stroke=\"#999999\"/>\n",
                          left, top, kPanelWidth, kPanelHeight);
    const auto line = [&](const char* colour, double stroke, const char* dashes, auto value_of) {
      std::string path;
      for (const Result& r : results) {
        if (r.protocol != "sampled" || r.file != files[f]) continue;
        const double value = value_of(r);
        if (!std::isfinite(value)) continue;
        absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L", x_of(r.m),
                              y_of(value));
      }
      absl::StrAppendFormat(&svg,
                            "<path d=\"%s\" stroke=\"%s\" stroke-width=\"%.1f\" "
                            "stroke-dasharray=\"%s\" fill=\"none\"/>\n",
                            path, colour, stroke, dashes);
    };
    line("black", 1, "3 3",
         [](const Result& r) { return r.method == "ours" ? 0.8 * r.noise_floor : std::nan(""); });
    for (size_t i = std::size(kLines); i-- > 0;) {
      line(kLines[i].colour, kLines[i].width, "none", [&](const Result& r) {
        return r.method == kLines[i].method ? r.mean_error : std::nan("");
      });
    }
  }
  double x = kLeft;
  const double y = height - kLegend / 2;
  const auto legend = [&](const char* colour, const char* dashes, const std::string& label) {
    absl::StrAppendFormat(&svg,
                          "<path d=\"M%.1f %.1fh18\" stroke=\"%s\" stroke-width=\"2\" "
                          "stroke-dasharray=\"%s\"/>\n",
                          x, y - 4, colour, dashes);
    text(x + 22, y, "start", label);
    x += 40 + 6.6 * static_cast<double>(label.size());
  };
  for (const auto& l : kLines) legend(l.colour, "none", l.label);
  legend("black", "3 3", "noise floor");
  text(kLeft, 16, "start", "Mean error of the run's time over the number of measured iterations");
  return svg + "</svg>\n";
}

}  // namespace seqpoint::accuracy
