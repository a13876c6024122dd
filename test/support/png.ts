/** Pictures of pages as small PNG files, with at most 256 colours, the most frequent ones. Pure. */
import { crc32, deflateSync, inflateSync } from 'node:zlib'

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
const COLOURS_MAX = 256

/** Width and height in pixels, of a PNG file. */
export function sizeOf(png: Buffer): { readonly width: number; readonly height: number } {
  return { width: png.readUInt32BE(16), height: png.readUInt32BE(20) }
}

/** The same picture with a palette. `png`: 8 bits a channel, without transparency, as browsers write pages. */
export function withPalette(png: Buffer): Buffer {
  const { width, height } = sizeOf(png)
  const channels = png[25] === 6 ? 4 : 3
  const pixels = unfiltered(inflateSync(dataOf(png)), width * channels, height, channels)
  const counts = new Map<number, number>()
  const colourAt = (at: number): number => pixels.readUIntBE(at * channels, 3)
  for (let at = 0; at < width * height; at++) counts.set(colourAt(at), (counts.get(colourAt(at)) ?? 0) + 1)
  const palette = [...counts]
    .sort(([, one], [, other]) => other - one)
    .slice(0, COLOURS_MAX)
    .map(([colour]) => colour)
  const places = new Map(palette.map((colour, at) => [colour, at]))
  const rows = Buffer.alloc((width + 1) * height)
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const colour = colourAt(y * width + x)
      let place = places.get(colour)
      if (place === undefined) {
        place = nearest(palette, colour)
        places.set(colour, place)
      }
      rows[y * (width + 1) + 1 + x] = place
    }
  }
  const head = Buffer.alloc(13)
  head.writeUInt32BE(width, 0)
  head.writeUInt32BE(height, 4)
  head.set([8, 3, 0, 0, 0], 8)
  const colours = Buffer.alloc(palette.length * 3)
  for (const [at, colour] of palette.entries()) colours.writeUIntBE(colour, at * 3, 3)
  return Buffer.concat([
    SIGNATURE,
    chunk('IHDR', head),
    chunk('PLTE', colours),
    chunk('IDAT', deflateSync(rows, { level: 9, memLevel: 9 })),
    chunk('IEND', Buffer.alloc(0)),
  ])
}

function dataOf(png: Buffer): Buffer {
  const parts: Buffer[] = []
  for (let at = SIGNATURE.length; at < png.length; ) {
    const length = png.readUInt32BE(at)
    if (png.toString('latin1', at + 4, at + 8) === 'IDAT') parts.push(png.subarray(at + 8, at + 8 + length))
    at += length + 12
  }
  return Buffer.concat(parts)
}

/** Undoes the filter of each row (PNG, section 9). */
function unfiltered(data: Buffer, stride: number, height: number, channels: number): Buffer {
  const pixels = Buffer.alloc(stride * height)
  for (let y = 0; y < height; y++) {
    const filter = data[y * (stride + 1)]
    for (let x = 0; x < stride; x++) {
      const left = x < channels ? 0 : (pixels[y * stride + x - channels] ?? 0)
      const up = y === 0 ? 0 : (pixels[(y - 1) * stride + x] ?? 0)
      const corner = x < channels || y === 0 ? 0 : (pixels[(y - 1) * stride + x - channels] ?? 0)
      const added = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter ?? 0] ?? 0
      pixels[y * stride + x] = (data[y * (stride + 1) + 1 + x] ?? 0) + added
    }
  }
  return pixels
}

function paeth(left: number, up: number, corner: number): number {
  const sum = left + up - corner
  const [ofLeft, ofUp, ofCorner] = [Math.abs(sum - left), Math.abs(sum - up), Math.abs(sum - corner)]
  if (ofLeft <= ofUp && ofLeft <= ofCorner) return left
  return ofUp <= ofCorner ? up : corner
}

function nearest(palette: readonly number[], colour: number): number {
  let best = 0
  let least = Number.POSITIVE_INFINITY
  for (const [at, each] of palette.entries()) {
    const distance = [16, 8, 0].reduce(
      (sum, bits) => sum + (((each >> bits) & 255) - ((colour >> bits) & 255)) ** 2,
      0,
    )
    if (distance < least) {
      least = distance
      best = at
    }
  }
  return best
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data])
  const whole = Buffer.alloc(body.length + 8)
  whole.writeUInt32BE(data.length, 0)
  body.copy(whole, 4)
  whole.writeUInt32BE(crc32(body), body.length + 4)
  return whole
}
