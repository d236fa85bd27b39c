"""Make the int8 models that the tests read: run this where tensorflow and tf2onnx are installed.

    python -m tests.frontends.tensorflow.make_models

The four architectures are those of the MLPerf Tiny benchmark (Banbury et al., "MLPerf Tiny
Benchmark", NeurIPS Datasets and Benchmarks 2021, table 1). Weights are random and seeded; batch
normalisation is fitted to the inputs, so that outputs vary. Each model is quantised to int8 by
TensorFlow Lite after training, converted by tf2onnx, and stored with inputs and what TensorFlow
Lite's reference kernels give for them.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

FOLDER = Path(__file__).parent / "models"
OPSET = 17
SAMPLES = 4
KEPT = "keyword-spotting"
"""The model whose TensorFlow Lite file is kept too."""
layers = tf.keras.layers


def smooth(shape: tuple[int, ...], count: int, seed: int) -> NDArray[np.float32]:
    """Images with structure: coarse noise made larger, and a little fine noise."""
    generator = np.random.default_rng(seed)
    height, width, channels = shape
    coarse = generator.uniform(-1, 1, (count, -(-height // 6), -(-width // 6), channels))
    large = np.repeat(np.repeat(coarse, 6, 1), 6, 2)[:, :height, :width]
    return (large + generator.normal(0, 0.2, (count, *shape))).astype(np.float32)


def keyword_spotting() -> tf.keras.Model:
    """DS-CNN: a convolution, then four depthwise separable ones."""
    image = layers.Input((49, 10, 1))
    x = _relu(layers.Conv2D(64, (10, 4), strides=2, padding="same")(image))
    for _ in range(4):
        x = _relu(layers.DepthwiseConv2D(3, padding="same")(x))
        x = _relu(layers.Conv2D(64, 1, padding="same")(x))
    x = layers.AveragePooling2D((25, 5))(x)
    return tf.keras.Model(image, _scores(12)(layers.Flatten()(x)))


def image_classification() -> tf.keras.Model:
    """ResNet-8: three stacks of one residual block."""
    image = layers.Input((32, 32, 3))
    x = _relu(layers.Conv2D(16, 3, padding="same")(image))
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        y = _relu(layers.Conv2D(channels, 3, strides=stride, padding="same")(x))
        y = layers.BatchNormalization(momentum=0.5)(layers.Conv2D(channels, 3, padding="same")(y))
        if stride > 1:
            x = layers.Conv2D(channels, 1, strides=stride, padding="same")(x)
        x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.AveragePooling2D(8)(x)
    return tf.keras.Model(image, _scores(10)(layers.Flatten()(x)))


def visual_wake_words() -> tf.keras.Model:
    """MobileNet v1 with a quarter of the channels, on 96 x 96 pixels."""
    image = layers.Input((96, 96, 3))
    x = _relu(layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(image))
    plan = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2)]
    for channels, stride in (*plan, (256, 1)):
        x = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)(x)
        x = _relu(layers.Conv2D(channels, 1, padding="same", use_bias=False)(_relu(x)))
    x = layers.AveragePooling2D(3)(x)
    return tf.keras.Model(image, _scores(2)(layers.Flatten()(x)))


def anomaly_detection() -> tf.keras.Model:
    """An autoencoder of 640 features, eight in its middle."""
    features = layers.Input((640,))
    x = features
    for width in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = _relu(layers.Dense(width)(x))
    return tf.keras.Model(features, layers.Dense(640)(x))


def _scores(count: int) -> object:
    """Weights so large that no class is as likely as another."""
    draw = tf.keras.initializers.RandomNormal(stddev=0.6)
    return layers.Dense(count, "softmax", kernel_initializer=draw)


def _relu(x: object) -> object:
    return layers.ReLU()(layers.BatchNormalization(momentum=0.5)(x))


MODELS: dict[str, Callable[[], tf.keras.Model]] = {
    "keyword-spotting": keyword_spotting,
    "image-classification": image_classification,
    "visual-wake-words": visual_wake_words,
    "anomaly-detection": anomaly_detection,
}


def inputs_of(name: str, count: int, seed: int) -> NDArray[np.float32]:
    """Inputs for a model; no two alike."""
    if name == "anomaly-detection":
        shape = (count, 32, 20, 1)
        return smooth(shape[1:], count, seed).reshape(count, 640)
    shape = {"keyword-spotting": (49, 10, 1), "image-classification": (32, 32, 3)}
    return smooth(shape.get(name, (96, 96, 3)), count, seed)


def quantised(name: str) -> bytes:
    """The model as int8 TensorFlow Lite."""
    tf.keras.utils.set_random_seed(7)
    model = MODELS[name]()
    data = inputs_of(name, 64, 1)
    for _ in range(12):
        _ = model(data, training=True)

    def representative() -> Iterator[list[NDArray[np.float32]]]:
        for sample in data:
            yield [sample[None]]

    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.int8
    converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def reference(name: str, model: bytes) -> dict[str, NDArray[np.int8]]:
    """Inputs, and the outputs of TensorFlow Lite's reference kernels."""
    kind = tf.lite.experimental.OpResolverType.BUILTIN_REF
    interpreter = tf.lite.Interpreter(model_content=model, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
    scale, zero = given["quantization"]
    samples = inputs_of(name, SAMPLES, 2)
    integers = np.clip(np.round(samples / scale) + zero, -128, 127).astype(np.int8)
    outputs: list[NDArray[np.int8]] = []
    for sample in integers:
        interpreter.set_tensor(given["index"], sample[None])
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(made["index"]))
    return {"inputs": integers, "outputs": np.concatenate(outputs)}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in MODELS:
        model = quantised(name)
        arrays = reference(name, model)
        if name == KEPT:
            (FOLDER / f"{name}.tflite").write_bytes(model)
        np.savez_compressed(FOLDER / f"{name}.npz", **arrays)
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "model.tflite"
            source.write_bytes(model)
            command = [sys.executable, "-m", "tf2onnx.convert", "--opset", str(OPSET)]
            target = FOLDER / f"{name}.onnx"
            _ = subprocess.run(
                [*command, "--tflite", str(source), "--output", str(target)], check=True
            )
        spread = arrays["outputs"].astype(int).std(axis=0).mean()
        print(f"{name}: {len(model)} bytes, outputs vary by {spread:.1f}")


if __name__ == "__main__":
    main()
