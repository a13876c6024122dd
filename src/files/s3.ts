/**
 * Bytes of files in a bucket that speaks S3, through the client library of AWS, which is loaded when it is first used.
 * Any thread.
 */
import { Readable } from 'node:stream'
import type { S3Client, S3ServiceException } from '@aws-sdk/client-s3'
import { serviceUnavailable } from '../errors.ts'
import { checkedId, type FileContents } from './contents.ts'

export interface S3Settings {
  readonly bucket: string
  /** Without slashes at its ends; '' for none. */
  readonly prefix: string
  /** Null: that of AWS for the region. */
  readonly endpoint: string | null
  readonly region: string
  readonly accessKeyId: string
  readonly secretAccessKey: string
}

/** The library warns on the console otherwise. */
const ignore = (): void => undefined
const SILENT = { debug: ignore, info: ignore, warn: ignore, error: ignore }
const CONNECT_MS = 5_000
/** Longest time without a byte from the bucket. */
const SILENCE_MS = 30_000
/** A bucket that is busy, or a connection that has just ended, is asked once more. */
const TRIES = 2

export function createS3Contents(settings: S3Settings): FileContents {
  let loading: Promise<{ library: typeof import('@aws-sdk/client-s3'); client: S3Client }> | null = null
  const loaded = () => {
    loading ??= connect(settings)
    return loading
  }
  const placeOf = (id: string) => ({
    Bucket: settings.bucket,
    Key: settings.prefix === '' ? checkedId(id) : `${settings.prefix}/${checkedId(id)}`,
  })
  return {
    async put(id, source) {
      const place = placeOf(id)
      const { library, client } = await loaded()
      await tried(async () => {
        const body = Readable.from(source.chunks(), { objectMode: false })
        // The library would wait on for bytes that never come, and nobody else hears of the failure.
        const broken = new AbortController()
        body.once('error', error => broken.abort(error))
        const object = { ...place, Body: body, ContentLength: source.bytes }
        try {
          await client.send(new library.PutObjectCommand(object), { abortSignal: broken.signal })
        } catch (error) {
          if (broken.signal.aborted) throw new BrokenSource(broken.signal.reason)
          throw error
        } finally {
          body.destroy()
        }
      })
    },
    async *read(id) {
      const place = placeOf(id)
      const { library, client } = await loaded()
      const { Body } = await tried(() => client.send(new library.GetObjectCommand(place)))
      if (!(Body instanceof Readable)) throw serviceUnavailable()
      try {
        for await (const chunk of Body) yield chunk as Uint8Array
      } catch (error) {
        throw serviceUnavailable(error)
      } finally {
        Body.destroy()
      }
    },
    async remove(id) {
      const place = placeOf(id)
      const { library, client } = await loaded()
      await tried(() => client.send(new library.DeleteObjectCommand(place)))
    },
  }
}

async function connect({ endpoint, region, accessKeyId, secretAccessKey }: S3Settings) {
  const library = await import('@aws-sdk/client-s3')
  const client = new library.S3Client({
    region,
    // The bucket in the path: names of buckets need no names of hosts.
    ...(endpoint === null ? {} : { endpoint, forcePathStyle: true }),
    credentials: { accessKeyId, secretAccessKey },
    logger: SILENT,
    maxAttempts: 1,
    requestHandler: { connectionTimeout: CONNECT_MS, requestTimeout: SILENCE_MS, socketTimeout: SILENCE_MS },
    // A stream has no checksum before it was sent, and not every server takes one at its end.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
  })
  return { library, client }
}

/** The source of the bytes cannot be read. */
class BrokenSource extends Error {
  constructor(cause: unknown) {
    super('the source is broken', { cause })
  }
}

async function tried<T>(send: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await send()
    } catch (error) {
      if (error instanceof BrokenSource) throw error.cause
      // Texts of the bucket may name keys: only code and class go to the log.
      if (tries >= TRIES || !isPassing(error)) throw serviceUnavailable(error)
    }
  }
}

function isPassing(error: unknown): boolean {
  const status = (error as Partial<S3ServiceException>).$metadata?.httpStatusCode
  return status === undefined || status >= 500 || status === 429
}
