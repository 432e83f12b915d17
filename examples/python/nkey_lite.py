"""Signs in with an nkey seed without further packages.

nats-py asks the package `nkeys` to sign, which brings a compiled library (`pip install nats-py[nkeys]`). Where that is not
installed this module takes its place: Ed25519 after RFC 8032 in plain integers. It signs one short nonce at each connect;
it is slow and its timing is not constant, so use it for nothing else.
"""

import base64
import hashlib

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)


def _recover_x(y):
    xx = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P)
    x = pow(xx, (_P + 3) // 8, _P)
    if (x * x - xx) % _P != 0:
        x = x * _ROOT % _P
    return _P - x if x % 2 else x


_BASE_Y = 4 * pow(5, _P - 2, _P) % _P
_BASE_X = _recover_x(_BASE_Y)
_BASE = (_BASE_X, _BASE_Y, 1, _BASE_X * _BASE_Y % _P)


def _add(p, q):
    a = (p[1] - p[0]) * (q[1] - q[0]) % _P
    b = (p[1] + p[0]) * (q[1] + q[0]) % _P
    c, d = 2 * p[3] * q[3] * _D % _P, 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % _P, g * h % _P, f * g % _P, e * h % _P)


def _times(scalar, point):
    result = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    return result


def _encode(point):
    inverse = pow(point[2], _P - 2, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _crc16(data):
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1
        crc &= 0xFFFF
    return crc


class KeyPair:
    """The part of `nkeys.KeyPair` that nats-py uses."""

    def __init__(self, seed):
        text = bytes(seed).decode().strip()
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
        if _crc16(raw[:-2]) != int.from_bytes(raw[-2:], "little") or not text.startswith("SU"):
            raise ValueError("this is no seed of a NATS user")
        digest = hashlib.sha512(raw[2:34]).digest()
        scalar = int.from_bytes(digest[:32], "little")
        self._scalar = scalar & (1 << 254) - 8 | 1 << 254
        self._prefix = digest[32:]
        self._public = _encode(_times(self._scalar, _BASE))
        prefixed = bytes([20 << 3]) + self._public  # 20 is the letter U
        checked = prefixed + _crc16(prefixed).to_bytes(2, "little")
        self.public_key = base64.b32encode(checked).rstrip(b"=")

    def sign(self, message):
        r = int.from_bytes(hashlib.sha512(self._prefix + message).digest(), "little") % _L
        point = _encode(_times(r, _BASE))
        k = int.from_bytes(hashlib.sha512(point + self._public + message).digest(), "little") % _L
        return point + ((r + k * self._scalar) % _L).to_bytes(32, "little")

    def wipe(self):
        self._scalar, self._prefix = 0, b""


def from_seed(seed):
    return KeyPair(seed)
