# SPDX-License-Identifier: Apache-2.0
"""Where the kernels meet vLLM: the only modules here that import it, and only when called."""
