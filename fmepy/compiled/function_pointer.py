"""Compiled functions by address, in the form that numba passes on quickest.

A function that is handed to compiled code has to be looked at by numba at every call: what it is, and where. An object
that keeps both ready (numba's wrapper address protocol) takes 3 us where the function itself takes 40.
"""

from __future__ import annotations

from typing import Any

from numba import types

__all__ = ["FunctionPointer"]


class FunctionPointer(types.WrapperAddressProtocol):
    """A function compiled by ``numba.cfunc``, ready to be passed to compiled code.

    Parameters
    ----------
    function : numba.cfunc
    signature : numba signature
    """

    def __init__(self, function: Any, signature: Any) -> None:
        self.function = function  # the code lives as long as this does
        self._signature = signature
        self._address = int(function.address)
        self._numba_type_ = types.FunctionType(signature)

    def __wrapper_address__(self) -> int:
        return self._address

    def __jit_address__(self) -> int:
        return 0

    def signature(self) -> Any:
        """Return the signature."""
        return self._signature
