// Texts of replies: names and command lines come from strangers, and may hold anything.
//
// Threading: pure functions.
#ifndef DAEMON_QUERIES_REPLY_TEXT_H_
#define DAEMON_QUERIES_REPLY_TEXT_H_

#include <google/protobuf/message.h>

namespace seqpoint::queries {

// Makes every text of a reply one that its reader can take. Bytes that are not UTF-8, of which a
// single one keeps a client from parsing the reply, become U+FFFD; what is longer than
// kMaxReplyTextBytes is cut.
void MakeFit(google::protobuf::Message* message);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_REPLY_TEXT_H_
