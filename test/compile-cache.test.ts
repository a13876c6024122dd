/** The cache of compiled code: made in the data folder for its user alone, filled, used again, and never needed. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { CLI, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from './support/product.ts'

const KEY = 'sk-gw-v1-3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d'

function dataFolder(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-compile-cache-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Starts a gateway, asks it once, and ends it in order. Returns the status of its answer and its exit code. */
async function startAndAsk(t: Test, folder: string): Promise<{ status: number; code: unknown }> {
  const { NODE_DISABLE_COMPILE_CACHE: _, ...environment } = PRODUCT_ENVIRONMENT
  const child = spawn(process.execPath, [...PRODUCT_FLAGS, CLI, 'start'], {
    cwd: folder,
    env: {
      ...environment,
      GATEWAY_PORT: '0',
      GATEWAY_ADMIN_PORT: '0',
      GATEWAY_API_KEY: KEY,
      DATABASE_URL: `sqlite:${folder}/gateway.db`,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  const ended = once(child, 'close')
  const url = await listening(createInterface({ input: child.stdout }))
  const reply = await fetch(`${url}/v1/responses`, {
    method: 'POST',
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'sim/echo', input: 'hello' }),
  })
  await reply.text()
  child.kill('SIGTERM')
  const [code] = await ended
  return { status: reply.status, code }
}

/** @throws Error when the output ends without it */
async function listening(lines: AsyncIterable<string>): Promise<string> {
  for await (const line of lines) {
    const { msg, url } = JSON.parse(line) as { msg: string; url: string }
    if (msg === 'listening') return url
  }
  throw new Error('it did not listen')
}

/** Files below the folder with the time of their last change. */
function filesIn(folder: string): Map<string, number> {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true })
  const files = entries.filter(entry => entry.isFile()).map(entry => join(entry.parentPath, entry.name))
  return new Map(files.map(file => [file, statSync(file).mtimeMs]))
}

const GOOD = { status: 200, code: 0 }

t.test(
  'a start keeps what it has compiled for its user alone, and the next one compiles nothing',
  async t => {
    const folder = dataFolder(t)
    const cache = join(folder, 'compile-cache')
    t.same(await startAndAsk(t, folder), GOOD)
    t.equal(statSync(cache).mode & 0o777, 0o700)
    const first = filesIn(cache)
    t.ok(first.size > 100, `${first.size} files`)
    t.same(await startAndAsk(t, folder), GOOD)
    const second = filesIn(cache)
    t.same(
      [...first].filter(([file, changedMs]) => second.get(file) !== changedMs),
      [],
      'nothing was written again',
    )
  },
)

t.test('a folder that others could write to is closed to them before it is used', async t => {
  const folder = dataFolder(t)
  const cache = join(folder, 'compile-cache')
  mkdirSync(cache)
  chmodSync(cache, 0o777)
  t.same(await startAndAsk(t, folder), GOOD)
  t.equal(statSync(cache).mode & 0o777, 0o700)
})

t.test('a start goes on without the cache where its folder cannot be made', async t => {
  const folder = dataFolder(t)
  writeFileSync(join(folder, 'compile-cache'), 'in the way')
  t.same(await startAndAsk(t, folder), GOOD)
  t.equal(readFileSync(join(folder, 'compile-cache'), 'utf8'), 'in the way')
})

t.test('a link in its place is not followed: code would come from elsewhere', async t => {
  const folder = dataFolder(t)
  const elsewhere = dataFolder(t)
  symlinkSync(elsewhere, join(folder, 'compile-cache'))
  t.same(await startAndAsk(t, folder), GOOD)
  t.same(readdirSync(elsewhere), [])
})
