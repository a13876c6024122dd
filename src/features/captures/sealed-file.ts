/**
 * Encrypted files of captures: append-only text, in chunks (AES-256-GCM). Each file has its own data key, wrapped by a
 * key derived from a master key. The wrapping and the chunks are bound to the capture, its organization and the part,
 * and each chunk to its position: chunks cannot be moved, swapped, repeated or cut out. A truncated end is reported.
 *
 * Layout: a line of JSON, then chunks: 4 bytes of length, 1 byte (1: the last chunk), box and tag.
 */
import { type KeyObject, randomBytes } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { decrypt, encrypt, NONCE_BYTES, TAG_BYTES } from '../../providers/credentials/cipher.ts'
import { deriveKey, keyObject, type VaultKey } from '../../providers/credentials/vault-keys.ts'

/** The part of a capture in one file. */
interface SealedPart {
  readonly captureId: string
  readonly organizationId: string
  /** Name of the part. */
  readonly name: string
  /** The time at which the file is removed, as ISO 8601 in UTC. */
  readonly expiresAt: string
}

/** A file cannot be decrypted. The error reveals nothing of its content. */
export class SealedFileError extends Error {
  override readonly name = 'SealedFileError'
  /** `unknown_key`: its master key is unknown; `damaged`: it was changed, or belongs to another capture. */
  readonly reason: 'unknown_key' | 'damaged'

  constructor(reason: SealedFileError['reason']) {
    super(
      reason === 'unknown_key'
        ? 'it was sealed with a master key that is not configured here'
        : 'it was changed, belongs to another capture, or was sealed with another master key of the same id',
    )
    this.reason = reason
  }
}

/** A purpose that is unique among all uses of the master keys. */
const KEY_PURPOSE = 'captures'
const KEY_BYTES = 32
/** Bytes of a chunk's length and mark. */
const CHUNK_HEAD_BYTES = 5
/** Maximum bytes of text in one chunk. */
const CHUNK_BYTES = 256 * 1024
/** A longer first line is not from the gateway. */
const MAX_HEADER_BYTES = 4_096

interface Header {
  readonly v: 1
  readonly capture: string
  readonly organization: string
  readonly part: string
  readonly expires_at: string
  readonly key: string
  /** Nonce, box and tag of the data key, base64. */
  readonly wrapped: string
}

/** Encrypts the text of one file. Keeps its data key in memory while it exists. */
export class FileSeal {
  /** The first bytes of the file. */
  readonly header: Buffer
  readonly #part: SealedPart
  readonly #key: KeyObject
  #chunks = 0

  /** @throws TypeError if there are no keys */
  constructor([current]: readonly VaultKey[], part: SealedPart) {
    if (current === undefined) throw new TypeError('a capture cannot be sealed without a master key')
    this.#part = part
    const dataKey = randomBytes(KEY_BYTES)
    const nonce = randomBytes(NONCE_BYTES)
    const box = encrypt(wrappingKey(current), nonce, dataKey, wrapBinding(part, current.id))
    this.#key = keyObject(dataKey)
    const header: Header = {
      v: 1,
      capture: part.captureId,
      organization: part.organizationId,
      part: part.name,
      expires_at: part.expiresAt,
      key: current.id,
      wrapped: Buffer.concat([nonce, box]).toString('base64'),
    }
    this.header = Buffer.from(`${JSON.stringify(header)}\n`)
  }

  /** Bytes that a text of this length needs in the file. */
  static sealedBytes(textBytes: number): number {
    return textBytes + Math.max(1, Math.ceil(textBytes / CHUNK_BYTES)) * (CHUNK_HEAD_BYTES + TAG_BYTES)
  }

  /** The next bytes of the file. `isLast`: nothing follows. */
  seal(text: Uint8Array, isLast: boolean): Buffer {
    const chunks: Buffer[] = []
    for (let start = 0; start < text.length || chunks.length === 0; start += CHUNK_BYTES) {
      const piece = text.subarray(start, start + CHUNK_BYTES)
      chunks.push(this.#chunk(piece, isLast && start + CHUNK_BYTES >= text.length))
    }
    return Buffer.concat(chunks)
  }

  #chunk(text: Uint8Array, isLast: boolean): Buffer {
    const index = this.#chunks++
    const box = encrypt(this.#key, nonceOf(index), text, chunkBinding(this.#part, index, isLast))
    const head = Buffer.alloc(CHUNK_HEAD_BYTES)
    head.writeUInt32BE(box.length)
    head.writeUInt8(isLast ? 1 : 0, CHUNK_HEAD_BYTES - 1)
    return Buffer.concat([head, box])
  }
}

/** A piece of the text of a file. */
type OpenedPiece =
  | { readonly kind: 'text'; readonly bytes: Buffer }
  /** `isWhole` is false if the file is still growing, or its process was killed. */
  | { readonly kind: 'end'; readonly isWhole: boolean }

/**
 * Reads the text of a file piece by piece, and finally its end.
 * @throws SealedFileError, or the error of the file system
 */
export async function* openSealedFile(
  path: string,
  keys: readonly VaultKey[],
  part: Pick<SealedPart, 'captureId' | 'organizationId' | 'name'>,
): AsyncGenerator<OpenedPiece> {
  let unread: Buffer = Buffer.alloc(0)
  let key: KeyObject | null = null
  let chunks = 0
  for await (const bytes of createReadStream(path, { highWaterMark: CHUNK_BYTES })) {
    unread = unread.length === 0 ? (bytes as Buffer) : Buffer.concat([unread, bytes as Buffer])
    if (key === null) {
      const end = unread.indexOf('\n')
      if (end === -1) {
        if (unread.length > MAX_HEADER_BYTES) throw new SealedFileError('damaged')
        continue
      }
      key = dataKeyOf(unread.subarray(0, end), keys, part)
      unread = unread.subarray(end + 1)
    }
    while (unread.length >= CHUNK_HEAD_BYTES) {
      const length = unread.readUInt32BE(0)
      if (length < TAG_BYTES || length > CHUNK_BYTES + TAG_BYTES) throw new SealedFileError('damaged')
      if (unread.length < CHUNK_HEAD_BYTES + length) break
      const isLast = unread[CHUNK_HEAD_BYTES - 1] === 1
      const box = unread.subarray(CHUNK_HEAD_BYTES, CHUNK_HEAD_BYTES + length)
      yield { kind: 'text', bytes: openChunk(key, box, part, chunks++, isLast) }
      unread = unread.subarray(CHUNK_HEAD_BYTES + length)
      if (isLast) {
        if (unread.length > 0) throw new SealedFileError('damaged')
        yield { kind: 'end', isWhole: true }
        return
      }
    }
  }
  yield { kind: 'end', isWhole: false }
}

/** The expiry in the first line of a file; null if the line cannot be read. */
export function expiryIn(beginning: Buffer): string | null {
  return parseHeader(beginning.subarray(0, Math.max(0, beginning.indexOf('\n'))))?.expires_at ?? null
}

function dataKeyOf(
  line: Buffer,
  keys: readonly VaultKey[],
  part: Pick<SealedPart, 'captureId' | 'organizationId' | 'name'>,
): KeyObject {
  const header = parseHeader(line)
  if (header === null) throw new SealedFileError('damaged')
  const master = keys.find(({ id }) => id === header.key)
  if (master === undefined) throw new SealedFileError('unknown_key')
  const wrapped = Buffer.from(header.wrapped, 'base64')
  if (wrapped.length !== NONCE_BYTES + KEY_BYTES + TAG_BYTES) throw new SealedFileError('damaged')
  const binding = wrapBinding({ ...part, expiresAt: header.expires_at }, master.id)
  return keyObject(
    openBox(wrappingKey(master), wrapped.subarray(0, NONCE_BYTES), wrapped.subarray(NONCE_BYTES), binding),
  )
}

function openChunk(
  key: KeyObject,
  box: Buffer,
  part: Pick<SealedPart, 'captureId' | 'organizationId' | 'name'>,
  index: number,
  isLast: boolean,
): Buffer {
  return openBox(key, nonceOf(index), box, chunkBinding(part, index, isLast))
}

/** @throws SealedFileError */
function openBox(key: KeyObject, nonce: Buffer, box: Buffer, binding: Buffer): Buffer {
  const plain = decrypt(key, nonce, box, binding)
  if (plain === null) throw new SealedFileError('damaged')
  return plain
}

function parseHeader(line: Buffer): Header | null {
  let value: unknown
  try {
    value = JSON.parse(line.toString('utf8'))
  } catch {
    return null
  }
  if (typeof value !== 'object' || value === null) return null
  const { v, key, wrapped, expires_at } = value as Partial<Record<keyof Header, unknown>>
  const isValid =
    v === 1 && typeof key === 'string' && typeof wrapped === 'string' && typeof expires_at === 'string'
  return isValid ? (value as Header) : null
}

function wrappingKey(key: VaultKey): KeyObject {
  return keyObject(deriveKey(key, KEY_PURPOSE))
}

/** Each data key encrypts only one file, so no nonce is used twice. */
function nonceOf(index: number): Buffer {
  const nonce = Buffer.alloc(NONCE_BYTES)
  nonce.writeBigUInt64BE(BigInt(index), NONCE_BYTES - 8)
  return nonce
}

function wrapBinding({ captureId, organizationId, name, expiresAt }: SealedPart, keyId: string): Buffer {
  return Buffer.from(JSON.stringify(['v1', 'data-key', keyId, captureId, organizationId, name, expiresAt]))
}

function chunkBinding(
  { captureId, organizationId, name }: Pick<SealedPart, 'captureId' | 'organizationId' | 'name'>,
  index: number,
  isLast: boolean,
): Buffer {
  return Buffer.from(JSON.stringify(['v1', 'chunk', captureId, organizationId, name, index, isLast]))
}
