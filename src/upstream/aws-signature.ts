/**
 * Signatures of AWS (version 4) by the library of AWS, which is loaded for the first signature. Node hashes the body,
 * several times faster than JavaScript would. Only the host and the headers of the signature itself are signed, so a
 * proxy may add headers. Serve and batch threads.
 */
import { createHash, createHmac } from 'node:crypto'
import type { Clock } from '../clock.ts'
import type { OutgoingKey, SignableRequest } from '../providers/provider.ts'

/** The access key of a user. */
export interface AwsAccess {
  readonly accessKeyId: string
  readonly secretAccessKey: string
}

/** The region and service for which a signature is valid. */
export interface AwsPlace {
  readonly region: string
  readonly service: string
}

type Sign = NonNullable<OutgoingKey['sign']>

/** Makes a function that signs requests with an access key. */
export function awsSigner(clock: Pick<Clock, 'nowMs'>, access: AwsAccess, place: AwsPlace): Sign {
  return async ({ method, url, body }: SignableRequest) => {
    const { SignatureV4 } = await import('@smithy/signature-v4')
    const signer = new SignatureV4({ credentials: access, ...place, sha256: Sha256 })
    const { headers } = await signer.sign(
      {
        method,
        protocol: url.protocol,
        hostname: url.hostname,
        path: url.pathname,
        query: Object.fromEntries(url.searchParams),
        headers: { host: url.host },
        body,
      },
      { signingDate: new Date(clock.nowMs()) },
    )
    const { host: _host, ...made } = headers
    return made
  }
}

/** The signatures in the headers of a signer. They are removed from replies that repeat them. */
export function signatureIn(headers: Readonly<Record<string, string>>): readonly string[] {
  const signature = /Signature=([0-9a-f]{64})/.exec(headers['authorization'] ?? '')?.[1]
  return signature === undefined ? [] : [signature]
}

type Bytes = string | ArrayBuffer | ArrayBufferView

/** Node's hash in the form that the library asks for. */
class Sha256 {
  readonly #hash: ReturnType<typeof createHash> | ReturnType<typeof createHmac>

  constructor(secret?: Bytes) {
    this.#hash = secret === undefined ? createHash('sha256') : createHmac('sha256', bytesOf(secret))
  }

  update(data: Bytes): void {
    this.#hash.update(bytesOf(data))
  }

  digest(): Promise<Uint8Array> {
    return Promise.resolve(this.#hash.digest())
  }

  /** The library makes a new one for each hash. */
  reset(): void {
    throw new Error('a hash is used once')
  }
}

function bytesOf(data: Bytes): string | Uint8Array {
  if (typeof data === 'string') return data
  return ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data)
}
