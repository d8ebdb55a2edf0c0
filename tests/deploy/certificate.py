"""Settings with files that exist, for seqpointd --check-config, which looks at them."""

import os
import re
import subprocess


def with_files(text, folder):
    """`text` with a certificate and its key, made in `folder`, in place of those of a site."""
    certificate, key = os.path.join(folder, "one.pem"), os.path.join(folder, "one.key")
    if not os.path.exists(certificate):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=one", "-keyout", key, "-out", certificate],
                       check=True, capture_output=True)
    text = re.sub(r'(?m)^(tls-certificate|tls-client-ca|hub-ca) = ".*"$', rf'\1 = "{certificate}"', text)
    return re.sub(r'(?m)^tls-key = ".*"$', f'tls-key = "{key}"', text)
