/** `sluice verify` as an auditor runs it: what it prints, how it ends, and which forgeries it finds. */
import { createHmac, generateKeyPairSync } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { CompactSign, importJWK, SignJWT } from 'jose'
import t from 'tap'
import { checkProof, ProofFault, publicKeysOf } from '../../../src/apps/commands/verify/check-proof.ts'
import { readSavedReply } from '../../../src/apps/commands/verify/saved-reply.ts'
import { runCommand } from '../../support/command-line.ts'
import { startGateway } from '../../support/gateway.ts'
import { tempFolder } from '../../support/temp-folder.ts'

const folder = tempFolder()
const proofKeyFile = join(folder, 'proof.key')
const gateway = await startGateway({ proofKeyFile })
t.teardown(() => gateway.close())

const headers = { 'x-gateway-metadata': 'enabled', 'x-gateway-proof': 'true' }
const body = { model: 'sim/echo', input: 'Hello' }
const whole = await (await gateway.respond(body, { headers })).text()
const stream = await (await gateway.respond({ ...body, stream: true }, { headers })).text()
const set = await (
  await fetch(`${gateway.url}/proof-keys`, { headers: { authorization: `Bearer ${gateway.apiKey}` } })
).text()
const keys = publicKeysOf(JSON.parse(set)) ?? []

function save(name: string, text: string): string {
  const path = join(folder, name)
  writeFileSync(path, text)
  return path
}

const files = {
  whole: save('whole.json', whole),
  stream: save('stream.txt', stream),
  keys: save('keys.json', set),
  request: save('request.json', JSON.stringify(body)),
  config: save('config.yaml', `proof: { keyFile: ${proofKeyFile} }\n`),
}

t.test(
  'a saved reply or stream is verified, with keys of a file, of the configuration or of a gateway',
  async t => {
    const { code, stdout, stderr } = await runCommand(t, ['verify', files.whole, '--keys', files.keys])
    t.equal(stderr, '')
    t.equal(code, 0)
    t.match(stdout, /^the proof is valid: gen-\S+, signed \d{4}-\S+Z by key [\w-]{43}$/m)
    t.match(stdout, /^ {2}answer {3}as it was signed: sim\/echo at Simulated$/m)
    t.match(stdout, /^ {2}request {2}not checked \(use --request FILE\); its SHA-256 is [0-9a-f]{64}$/m)
    t.match(stdout, /^ {2}sent to {2}1 model call:$/m)
    t.match(stdout, /sim\/echo at Simulated, promises no region, .*, credential shared, status 200$/m)
    const ways = [
      ['--keys', files.keys, '--request', files.request],
      ['--config', files.config],
      ['--keys', gateway.url, '--key', gateway.apiKey],
      ['--keys', `${gateway.url}/proof-keys`, '--key', gateway.apiKey, '--json'],
    ]
    for (const words of ways) {
      const outcome = await runCommand(t, ['verify', files.stream, ...words])
      t.equal(outcome.code, words.includes('--request') ? 1 : 0, outcome.stderr)
    }
    const asked = await runCommand(t, ['verify', files.whole, '--request', files.request, ...(ways[1] ?? [])])
    t.match(asked.stdout, /^ {2}request {2}as it was signed$/m)
    const json = await runCommand(t, ['verify', files.whole, '--config', files.config, '--json'])
    t.match(JSON.parse(json.stdout), { iss: 'sluice', calls: [{ provider: 'Simulated' }] })
  },
)

t.test('what does not hold is said, with exit code 1; what cannot be read, with 2', async t => {
  const cases: readonly [string, readonly string[], number, RegExp][] = [
    [
      'changed',
      [save('a', whole.replace('Hello', 'Hullo')), '--keys', files.keys],
      1,
      /the answer is not the one that was signed/,
    ],
    [
      'another request',
      [files.whole, '--keys', files.keys, '--request', files.stream],
      1,
      /the request is not the one/,
    ],
    ['no proof', [save('b', '{"id":"x"}'), '--keys', files.keys], 1, /has no gateway_metadata\.proof/],
    ['no reply', [save('c', 'hello'), '--keys', files.keys], 1, /neither a JSON reply nor an event stream/],
    ['no file', [join(folder, 'none'), '--keys', files.keys], 2, /cannot be read \(ENOENT\)/],
    ['no keys', [files.whole, '--keys', files.whole], 2, /--keys: expects a JWK set/],
    ['no argument', [], 2, /FILE: is missing/],
  ]
  for (const [name, words, code, message] of cases) {
    const outcome = await runCommand(t, ['verify', ...words])
    t.equal(outcome.code, code, `${name}: ${outcome.stderr}`)
    t.match(outcome.stderr, message, name)
    t.equal(outcome.stdout, '', name)
  }
})

async function verdict(text: string, with_ = keys): Promise<string> {
  const reply = readSavedReply(text)
  if (typeof reply === 'string') return reply
  try {
    await checkProof(reply, with_, null)
    return 'holds'
  } catch (error) {
    if (!(error instanceof ProofFault)) throw error
    return error.message
  }
}

const proofIn = (text: string) => /"proof":"([^"]+)"/.exec(text)?.[1] ?? ''
const forged = (proof: string) => whole.replace(proofIn(whole), proof)
const encoded = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')

t.test('forged signatures are found, whatever algorithm they name', async t => {
  const [head = '', payload = '', signature = ''] = proofIn(whole).split('.')
  const header = JSON.parse(Buffer.from(head, 'base64url').toString()) as Record<string, unknown>
  const statement = JSON.parse(Buffer.from(payload, 'base64url').toString()) as Record<string, unknown>
  const [key] = keys
  const hmac = (signed: string) =>
    createHmac('sha256', Buffer.from(key?.x ?? '', 'base64url'))
      .update(signed)
      .digest('base64url')
  t.equal(await verdict(forged(proofIn(whole))), 'holds')
  for (const alg of ['none', 'None', 'HS256', 'ES256', 'RS256', '', null, 7]) {
    const other = encoded({ ...header, alg })
    const message = 'its algorithm is not EdDSA'
    t.equal(await verdict(forged(`${other}.${payload}.`)), message, String(alg))
    t.equal(await verdict(forged(`${other}.${payload}.${hmac(`${other}.${payload}`)}`)), message, String(alg))
  }
  t.equal(await verdict(forged(`${head}.${payload}.`)), 'its signature is not valid')
  t.equal(
    await verdict(forged(`${head}.${payload}.${hmac(`${head}.${payload}`)}`)),
    'its signature is not valid',
  )
  const moved = encoded({ ...statement, calls: [] })
  t.equal(await verdict(forged(`${head}.${moved}.${signature}`)), 'its signature is not valid')
  for (const kid of [undefined, 7, 'x', '../etc/passwd']) {
    const other = encoded({ ...header, kid })
    t.equal(await verdict(forged(`${other}.${payload}.${signature}`)), 'its header names no key')
  }
  for (const junk of ['', '.', '..', 'a.b', 'a.b.c', 'ä.ö.ü', 'x'.repeat(100_000)])
    t.match(await verdict(forged(junk)), /is not a signed statement/, junk.slice(0, 9))
})

t.test('a stranger cannot sign, and the key signs nothing else that passes', async t => {
  const stranger = generateKeyPairSync('ed25519').privateKey
  const [head = '', payload = ''] = proofIn(whole).split('.')
  const header = JSON.parse(Buffer.from(head, 'base64url').toString()) as {
    alg: string
    kid: string
    typ: string
  }
  const bytes = Buffer.from(payload, 'base64url')
  const strange = await new CompactSign(bytes)
    .setProtectedHeader({ ...header, jwk: stranger.export({ format: 'jwk' }) } as never)
    .sign(stranger)
  t.equal(await verdict(forged(strange)), 'its signature is not valid', 'a key in the header is not believed')
  const { keys: secrets } = JSON.parse(readFileSync(proofKeyFile, 'utf8')) as {
    keys: Record<string, string>[]
  }
  const own = await importJWK(secrets[0] ?? {}, 'EdDSA')
  const token = await new CompactSign(bytes).setProtectedHeader({ ...header, typ: 'JWT' }).sign(own)
  t.equal(await verdict(forged(token)), 'it was signed for another purpose')
  const jwt = await new SignJWT({ iss: 'other' }).setProtectedHeader(header).sign(own)
  t.equal(await verdict(forged(jwt)), 'it was signed for another purpose')
})

t.test('a proof belongs to its answer alone, and covers nothing behind it', async t => {
  const other = await (await gateway.respond({ ...body, input: 'Bye' }, { headers })).text()
  t.equal(await verdict(forged(proofIn(other))), 'the answer is not the one that was signed')
  const events = stream.split('\n\n').filter(each => each.includes('data: {'))
  t.equal(await verdict(events.join('\n\n')), 'holds')
  t.match(
    await verdict([...events, events[0]].join('\n\n')),
    /events that no proof covers follow the one with the proof: \d+/,
  )
  t.match(
    await verdict(events.slice(0, -1).join('\n\n')),
    /has no gateway_metadata\.proof/,
    'a stream that broke off',
  )
  t.equal(await verdict(stream.replaceAll('\n', '\r\n')), 'holds', 'line ends of another system')
})
