# SPDX-License-Identifier: Apache-2.0
"""Where the kernels meet vLLM: the only modules of this package that import it, and only when called."""
