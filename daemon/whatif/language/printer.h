// Writes a what-if as text that reads as the same one.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_LANGUAGE_PRINTER_H_
#define DAEMON_WHATIF_LANGUAGE_PRINTER_H_

#include <string>

#include "daemon/whatif/language/request.h"

namespace seqpoint::whatif {

// One step a line.
std::string FormatRequest(const Request& request);
std::string FormatAmount(const Amount& amount);
std::string FormatSelection(const Selection& selection);
std::string Quoted(const std::string& text);  // as text stands in a request

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_LANGUAGE_PRINTER_H_
