"""Sums and quotients of sizes: numbers where all parts are known, operations of ``arith`` else."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.ascend.hivm.views import Size, Text


@dataclass(frozen=True)
class Arithmetic:
    """Values of type index, defined where they are first asked for."""

    body: Text

    def plus(self, *terms: Size) -> Size:
        """Return the sum of sizes."""
        number = sum(term for term in terms if isinstance(term, int))
        total: Size = 0
        for term in (*(term for term in terms if isinstance(term, str)), number):
            if total == 0:
                total = term
            elif term != 0:
                total = self._binary("addi", total, term)
        return total

    def minus(self, left: Size, right: Size) -> Size:
        """Return the difference of two sizes."""
        if isinstance(right, int):
            return self.plus(left, -right)
        return 0 if left == right else self._binary("subi", left, right)

    def times(self, value: Size, factor: int) -> Size:
        """Return the product of a size and a constant."""
        if isinstance(value, int) or factor == 0:
            return value * factor if isinstance(value, int) else 0
        return value if factor == 1 else self._binary("muli", value, factor)

    def least(self, left: Size, right: Size) -> Size:
        """Return the smaller of two sizes."""
        if isinstance(left, int) and isinstance(right, int):
            return min(left, right)
        return left if left == right else self._binary("minsi", left, right)

    def most(self, left: Size, right: Size) -> Size:
        """Return the larger of two sizes."""
        if isinstance(left, int) and isinstance(right, int):
            return max(left, right)
        return left if left == right else self._binary("maxsi", left, right)

    def down(self, value: Size, divisor: int) -> Size:
        """A quotient, rounded down."""
        if isinstance(value, int):
            return value // divisor
        return value if divisor == 1 else self._binary("floordivsi", value, divisor)

    def up(self, value: Size, divisor: int) -> Size:
        """A quotient, rounded up."""
        if isinstance(value, int):
            return -(-value // divisor)
        return value if divisor == 1 else self._binary("ceildivsi", value, divisor)

    def rest(self, value: Size, divisor: int) -> Size:
        """Return the remainder of a value that is not negative."""
        if isinstance(value, int):
            return value % divisor
        return 0 if divisor == 1 else self._binary("remsi", value, divisor)

    def _binary(self, name: str, left: Size, right: Size) -> Size:
        values = [self.body.index(each) for each in (left, right)]
        return self.body.once("n", f"arith.{name} {', '.join(values)} : index")
