#include "daemon/rpc/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/slice.h>

#include <string_view>
#include <utility>

namespace seqpoint::rpc {
namespace {

std::string_view TextOf(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

void AppendProperties(const grpc_auth_context* context, const char* name,
                      std::vector<std::string>* values) {
  grpc_auth_property_iterator all = grpc_auth_context_find_properties_by_name(context, name);
  while (const grpc_auth_property* property = grpc_auth_property_iterator_next(&all)) {
    values->emplace_back(property->value, property->value_length);
  }
}

}  // namespace

TlsCredentials::TlsCredentials(Certificates certificates, std::unique_ptr<TlsFiles> files,
                               std::unique_ptr<Access> access)
    : certificates_(certificates), files_(std::move(files)), access_(std::move(access)) {}

int TlsCredentials::AddPortToServer(const std::string& address, grpc_server* server) {
  grpc_ssl_client_certificate_request_type request = GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  if (certificates_ == Certificates::kVerifiedIfShown) {
    request = GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
  } else if (certificates_ == Certificates::kRequired) {
    request = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  grpc_server_credentials* const credentials = grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(request, &Fetch, this));
  grpc_server_credentials_set_auth_metadata_processor(
      credentials, {.process = &Process, .destroy = nullptr, .state = this});
  const int port = grpc_server_add_http2_port(server, address.c_str(), credentials);
  grpc_server_credentials_release(credentials);
  return port;
}

grpc_ssl_certificate_config_reload_status TlsCredentials::Fetch(
    void* self, grpc_ssl_server_certificate_config** config) {
  TlsCredentials& credentials = *static_cast<TlsCredentials*>(self);
  if (!credentials.files_->Reload() && std::exchange(credentials.fetched_, true)) {
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  }
  credentials.fetched_ = true;
  const TlsPem& pem = credentials.files_->pem();
  const grpc_ssl_pem_key_cert_pair pair = {pem.key.c_str(), pem.certificate.c_str()};
  *config = grpc_ssl_server_certificate_config_create(
      pem.authorities.empty() ? nullptr : pem.authorities.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

void TlsCredentials::Process(void* self, grpc_auth_context* context, const grpc_metadata* metadata,
                             size_t count, grpc_process_auth_metadata_done_cb done,
                             void* done_data) {
  CallingPeer peer;
  std::vector<std::string> certificates;
  AppendProperties(context, GRPC_X509_PEM_CERT_PROPERTY_NAME, &certificates);
  peer.has_certificate = !certificates.empty();
  AppendProperties(context, GRPC_X509_CN_PROPERTY_NAME, &peer.names);
  AppendProperties(context, GRPC_X509_SAN_PROPERTY_NAME, &peer.names);
  std::string_view method;
  const grpc_metadata* token = nullptr;
  for (size_t i = 0; i < count; ++i) {
    if (TextOf(metadata[i].key) == ":path") method = TextOf(metadata[i].value);
    if (TextOf(metadata[i].key) == "authorization") token = &metadata[i];
  }
  if (token != nullptr) peer.authorization = TextOf(token->value);
  const absl::Status status =
      static_cast<TlsCredentials*>(self)->access_->Check({method.data(), method.size()}, peer);
  done(done_data, token, token == nullptr ? 0 : 1, nullptr, 0,
       static_cast<grpc_status_code>(status.code()), std::string(status.message()).c_str());
}

}  // namespace seqpoint::rpc
