"""Programs that are refused: text, the code, and words of the reason."""


def main(body: str, inputs: str = "%x: tensor<4xf32>", result: str = "tensor<4xf32>") -> str:
    """A program of one function."""
    return f"func.func @main({inputs}) -> {result} {{\n{body}\n}}"


def returning(operation: str, kind: str = "tensor<4xf32>", more: str = "") -> str:
    """A program that returns what one operation gives."""
    return main(f"%r = {operation}\nreturn %r : {kind}\n", result=kind) + more


WHILE = """
%r = stablehlo.while(%i = %x) : tensor<4xf32>
cond {
  %k = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%i init: %k) applies stablehlo.add across dimensions = [0]
    : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %c = stablehlo.compare LT, %s, %k : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %c : tensor<i1>
} do {
  stablehlo.return %i : tensor<4xf32>
}
return %r : tensor<4xf32>
"""

ENDLESS = WHILE.replace("stablehlo.compare LT, %s, %k", "stablehlo.compare EQ, %k, %k")

BRANCHES = """
%i = stablehlo.convert %x : (tensor<f32>) -> tensor<i32>
%r = "stablehlo.case"(%i) ({
  stablehlo.return %x : tensor<f32>
}) : (tensor<i32>) -> tensor<f32>
return %r : tensor<f32>
"""

SCATTER = """
%i = stablehlo.constant dense<1> : tensor<1x1xi32>
%u = stablehlo.constant dense<1.0> : tensor<1xf32>
%r = "stablehlo.scatter"(%x, %i, %u) ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  stablehlo.return %b : tensor<f32>
}) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
  : (tensor<4xf32>, tensor<1x1xi32>, tensor<1xf32>) -> tensor<4xf32>
return %r : tensor<4xf32>
"""

REDUCE = """
%k = stablehlo.constant dense<0.0> : tensor<f32>
%r = stablehlo.reduce(%x init: %k) across dimensions = [0]
  : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  reducer(%a: tensor<f32>, %b: tensor<f32>) {
    %s = stablehlo.subtract %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }
return %r : tensor<f32>
"""

HUGE = """
%r = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<4xf32>) -> tensor<4x99999999999xf32>
%k = stablehlo.constant dense<0.0> : tensor<f32>
%s = stablehlo.reduce(%r init: %k) applies stablehlo.add across dimensions = [1]
  : (tensor<4x99999999999xf32>, tensor<f32>) -> tensor<4xf32>
return %s : tensor<4xf32>
"""

RECURSIVE = "\nfunc.func private @again(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
RECURSIVE += "%r = call @again(%x) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %r : tensor<4xf32>\n}"

CASES = {
    "no program": ("not a program", "stablehlo-syntax", ""),
    "nothing": ("", "stablehlo-entry", "main"),
    "no function main": ("func.func private @f() { return }", "stablehlo-entry", "main"),
    "an unknown dialect": (returning("other.op %x : tensor<4xf32>"), "stablehlo-syntax", "other"),
    "a wrong type": (
        returning("stablehlo.add %x, %x : tensor<5xf32>"),
        "stablehlo-syntax",
        "tensor<5xf32>",
    ),
    "complex numbers": (
        returning("stablehlo.complex %x, %x : tensor<4xcomplex<f32>>", "tensor<4xcomplex<f32>>"),
        "stablehlo-dtype",
        "complex",
    ),
    "open sizes": (
        main("return %x : tensor<?xf32>", "%x: tensor<?xf32>", "tensor<?xf32>"),
        "stablehlo-shape",
        "open",
    ),
    "an empty input": (
        main("return %x : tensor<0xf32>", "%x: tensor<0xf32>", "tensor<0xf32>"),
        "stablehlo-shape",
        "no elements",
    ),
    "a large tensor": (main(HUGE), "stablehlo-too-large", "99999999999"),
    "a bit cast": (
        returning(
            "stablehlo.bitcast_convert %x : (tensor<4xf32>) -> tensor<4xi32>", "tensor<4xi32>"
        ),
        "stablehlo-unsupported",
        "bitcast_convert",
    ),
    "scatter": (main(SCATTER), "stablehlo-unsupported", "scatter"),
    "random numbers": (
        returning(
            "stablehlo.rng %k, %k, %s, distribution = NORMAL : (tensor<f32>, tensor<f32>, "
            "tensor<1xi64>) -> tensor<4xf32>"
        ).replace(
            "%r =",
            "%k = stablehlo.constant dense<0.0> : tensor<f32>\n"
            "%s = stablehlo.constant dense<4> : tensor<1xi64>\n%r =",
        ),
        "stablehlo-unsupported",
        "rng",
    ),
    "another reduction": (
        main(REDUCE, result="tensor<f32>"),
        "stablehlo-unsupported",
        "none of",
    ),
    "rounds that depend on data": (main(WHILE), "stablehlo-unsupported", "run time"),
    "rounds without end": (main(ENDLESS), "stablehlo-unsupported", "1024"),
    "branches that depend on data": (
        main(BRANCHES, "%x: tensor<f32>", "tensor<f32>"),
        "stablehlo-unsupported",
        "jnp.where",
    ),
    "a custom call": (
        returning("stablehlo.custom_call @mine(%x) : (tensor<4xf32>) -> tensor<4xf32>"),
        "stablehlo-unsupported",
        "'mine'",
    ),
    "a function of itself": (
        returning("call @again(%x) : (tensor<4xf32>) -> tensor<4xf32>", more=RECURSIVE),
        "stablehlo-too-large",
        "deep",
    ),
    "total order": (
        returning(
            "stablehlo.compare LT, %x, %x, TOTALORDER "
            ": (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>",
            "tensor<4xi1>",
        ),
        "stablehlo-unsupported",
        "total order",
    ),
    "a tuple as a result": (
        returning(
            "stablehlo.tuple %x, %x : tuple<tensor<4xf32>, tensor<4xf32>>",
            "tuple<tensor<4xf32>, tensor<4xf32>>",
        ),
        "stablehlo-dtype",
        "tuple",
    ),
}
