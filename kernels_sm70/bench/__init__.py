# SPDX-License-Identifier: Apache-2.0
"""One bench harness for every operation: graph replays, rotated weight sets, alternation, losses
kept.
"""
