/**
 * Destinations of exports: a folder, an S3 bucket, or an HTTP address. Main thread: bodies are written, hashed and
 * signed in the threads of the system library, because the main thread serves all other threads.
 */
import { webcrypto } from 'node:crypto'
import { mkdir, open, readFile, rename } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import { s3Signer } from '../../providers/upstream/aws-signature.ts'
import { ReadTurns } from '../../providers/upstream/read-turns.ts'
import { requestWithin } from '../../providers/upstream/undici/request.ts'
import { undici } from '../../providers/upstream/undici/undici.ts'

/** A row of `export` in the configuration. */
export interface ExportRow {
  readonly url: string
  readonly format?: 'jsonl'
  readonly everyMs?: number
  readonly maxWaitingBytes?: number
  readonly endpoint?: string
  readonly region?: string
  readonly accessKeyIdFile?: string
  readonly secretAccessKeyFile?: string
  readonly secretFile?: string
}

export interface Destination {
  /** For the log: the folder, or the bucket or host without the rest of its address. */
  readonly label: string
  /**
   * Stores an object, and replaces an earlier one with the same name; an HTTP address gets the name in a header.
   * Rejects unless the object was certainly stored.
   */
  put(name: string, body: Buffer): Promise<void>
}

const PUT_TIMEOUT_MS = 60_000

export function createDestination(row: ExportRow, clock: Clock): Destination {
  const { protocol } = new URL(row.url)
  if (protocol === 'file:') return folderOf(row.url)
  return protocol === 's3:' ? bucketOf(row, clock) : addressOf(row, clock)
}

function folderOf(url: string): Destination {
  // `file:./data/usage` is relative, as in other settings.
  const folder = resolve(decodeURI(url.slice('file:'.length)).replace(/^\/\/(?=\/)/, ''))
  return {
    label: folder,
    async put(name, body) {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const draft = join(folder, `.${name}.part`)
      const file = await open(draft, 'w', 0o600)
      try {
        await file.writeFile(body)
        await file.sync()
      } finally {
        await file.close()
      }
      await rename(draft, join(folder, name))
    },
  }
}

function bucketOf(row: ExportRow, clock: Clock): Destination {
  const { host: bucket, pathname } = new URL(row.url)
  const { region = 'us-east-1', accessKeyIdFile = '', secretAccessKeyFile = '' } = row
  const base =
    row.endpoint === undefined
      ? `https://${bucket}.s3.${region}.amazonaws.com`
      : `${row.endpoint.replace(/\/$/, '')}/${bucket}`
  const prefix = pathname.replace(/^\/|\/$/g, '')
  return {
    label: `s3://${bucket}`,
    async put(name, body) {
      const access = {
        accessKeyId: await lineOf(accessKeyIdFile),
        secretAccessKey: await lineOf(secretAccessKeyFile),
      }
      const url = new URL(`${base}/${prefix === '' ? '' : `${prefix}/`}${name}`)
      const sha256 = hex(await webcrypto.subtle.digest('SHA-256', body))
      const headers = { 'content-length': String(body.length), 'content-type': 'application/x-ndjson' }
      const sign = s3Signer(clock, access, region)
      await send(
        clock,
        url,
        'PUT',
        { ...(await sign({ method: 'PUT', url, headers }, sha256)), host: url.host },
        body,
      )
    },
  }
}

function addressOf({ url: address, secretFile }: ExportRow, clock: Clock): Destination {
  const url = new URL(address)
  return {
    label: url.host,
    async put(name, body) {
      const seconds = Math.floor(clock.nowMs() / 1000)
      const secrets = secretFile === undefined ? [] : await secretsOf(secretFile)
      const signedBytes = secrets.length === 0 ? body : Buffer.concat([Buffer.from(`${seconds}.`), body])
      const signatures = await Promise.all(
        secrets.map(async secret => `v1=${await hmacOf(secret, signedBytes)}`),
      )
      const headers = {
        'content-type': 'application/x-ndjson',
        'x-sluice-export': name,
        ...(secrets.length === 0 ? {} : { 'x-sluice-signature': [`t=${seconds}`, ...signatures].join(',') }),
      }
      await send(clock, url, 'POST', headers, body)
    },
  }
}

async function send(
  clock: Clock,
  url: URL,
  method: 'PUT' | 'POST',
  headers: Readonly<Record<string, string>>,
  body: Buffer,
): Promise<void> {
  const ending = new AbortController()
  const timer = clock.after(PUT_TIMEOUT_MS, () => ending.abort(new Error('no answer in time')))
  const dispatcher = new (undici().Agent)({ connections: 1 })
  try {
    const path = `${url.pathname}${url.search}`
    const request = { origin: url.origin, path, method, headers, body }
    // The connection is closed without reading the body.
    const { statusCode } = await requestWithin(dispatcher, request, new ReadTurns(), ending.signal)
    if (statusCode < 200 || statusCode >= 300) throw new Error(`status ${statusCode}`)
  } finally {
    timer.cancel()
    await dispatcher.destroy()
  }
}

async function lineOf(path: string): Promise<string> {
  return (await readFile(path, 'utf8')).trim()
}

/** At most two, while one replaces the other. */
async function secretsOf(path: string): Promise<readonly string[]> {
  const line = await lineOf(path)
  if (line === '') throw new Error('secretFile is empty')
  return line.split(/\s+/).slice(0, 2)
}

async function hmacOf(secret: string, body: Buffer): Promise<string> {
  const algorithm = { name: 'HMAC', hash: 'SHA-256' }
  const key = await webcrypto.subtle.importKey('raw', Buffer.from(secret), algorithm, false, ['sign'])
  return hex(await webcrypto.subtle.sign('HMAC', key, body))
}

function hex(bytes: ArrayBuffer): string {
  return Buffer.from(bytes).toString('hex')
}
