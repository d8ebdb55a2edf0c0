// Figures of placements for a whole run: the GNMT of the software GPU over the lengths of a real
// corpus. docs/using/placement-accuracy.md, "The whole run".
#ifndef SEQPOINT_TESTS_PLACEMENT_GNMT_FIGURES_H_
#define SEQPOINT_TESTS_PLACEMENT_GNMT_FIGURES_H_

#include "tests/support/figure_table.h"

namespace seqpoint::placement {

// Takes minutes. Prints as it goes on.
void GnmtFigures(FigureTable& table);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_TESTS_PLACEMENT_GNMT_FIGURES_H_
