// Owned objects of OpenSSL, and reading of PEM.
//
// Threading: as OpenSSL's. Ownership: each object frees what it holds.
#ifndef PROTO_OPENSSL_OBJECTS_H_
#define PROTO_OPENSSL_OBJECTS_H_

#include <openssl/bio.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace seqpoint::openssl {

template <typename T, void (*Free)(T*)>
struct FreeObject {
  void operator()(T* object) const { Free(object); }
};
template <typename T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, FreeObject<T, Free>>;
using Bio = Owned<BIO, &BIO_free_all>;
using Certificate = Owned<X509, &X509_free>;

// Reads `text`, which outlives it.
inline Bio Memory(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// A program that asks nobody for the pass phrase of a key.
inline int NoPassPhrase(char*, int, int, void*) { return -1; }

}  // namespace seqpoint::openssl

#endif  // PROTO_OPENSSL_OBJECTS_H_
