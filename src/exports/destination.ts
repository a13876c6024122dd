/** Destinations of exports: a folder, a bucket of S3, or an HTTPS address. Main thread. */
import { createHash, createHmac } from 'node:crypto'
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Clock } from '../clock.ts'
import { s3Signer } from '../upstream/aws-signature.ts'
import { requestWithin, undici } from '../upstream/undici/undici.ts'

/** A row of `export` in the configuration. */
export interface ExportRow {
  readonly url: string
  readonly format?: 'jsonl'
  readonly everyMs?: number
  readonly endpoint?: string
  readonly region?: string
  readonly accessKeyIdFile?: string
  readonly secretAccessKeyFile?: string
  readonly secretFile?: string
}

export interface Destination {
  /** For the log: no path, no key. */
  readonly place: string
  /** Puts an object, in the place of an earlier one of the same name. Rejects if it may not be there. */
  put(name: string, body: Buffer): Promise<void>
}

const PUT_MS = 60_000

export function createDestination(row: ExportRow, clock: Clock): Destination {
  const { protocol } = new URL(row.url)
  if (protocol === 'file:') return folderOf(row.url)
  return protocol === 's3:' ? bucketOf(row, clock) : addressOf(row, clock)
}

function folderOf(url: string): Destination {
  // `file:./data/usage` is relative, as in other settings.
  const folder = resolve(decodeURI(url.slice('file:'.length)).replace(/^\/\/(?=\/)/, ''))
  return {
    place: folder,
    async put(name, body) {
      mkdirSync(folder, { recursive: true, mode: 0o700 })
      const draft = join(folder, `.${name}.part`)
      writeFileSync(draft, body, { mode: 0o600, flush: true })
      renameSync(draft, join(folder, name))
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
    place: `s3://${bucket}`,
    async put(name, body) {
      const access = { accessKeyId: lineOf(accessKeyIdFile), secretAccessKey: lineOf(secretAccessKeyFile) }
      const url = new URL(`${base}/${prefix === '' ? '' : `${prefix}/`}${name}`)
      const sha256 = createHash('sha256').update(body).digest('hex')
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
    place: url.host,
    async put(name, body) {
      const seconds = Math.floor(clock.nowMs() / 1000)
      const secrets = secretFile === undefined ? [] : lineOf(secretFile).split(/\s+/).slice(0, 2)
      const signatures = secrets.map(
        secret => `v1=${createHmac('sha256', secret).update(`${seconds}.`).update(body).digest('hex')}`,
      )
      const signed =
        secrets.length === 0 ? {} : { 'x-sluice-signature': [`t=${seconds}`, ...signatures].join(',') }
      const headers = { 'content-type': 'application/x-ndjson', 'x-sluice-export': name, ...signed }
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
  const timer = clock.after(PUT_MS, () => ending.abort(new Error('no answer in time')))
  const dispatcher = new (undici().Agent)({ connections: 1 })
  try {
    const path = `${url.pathname}${url.search}`
    const request = { origin: url.origin, path, method, headers, body }
    const reply = await requestWithin(dispatcher, request, ending.signal)
    await reply.body.dump()
    if (reply.statusCode < 200 || reply.statusCode >= 300) throw new Error(`status ${reply.statusCode}`)
  } finally {
    timer.cancel()
    await dispatcher.destroy()
  }
}

function lineOf(path: string): string {
  return readFileSync(path, 'utf8').trim()
}
