/** `sluice verify`: checks the proof of placement in a saved reply, and prints what it proves. */
import { readFileSync, statSync } from 'node:fs'
import { systemCode } from '../../base/errors.ts'
import { loadConfig, processEnvironment } from '../../process/config/config.ts'
import type { ProofCall, ProofStatement } from '../../protocol/management/proof.ts'
import { ProofKeyError, readProofRing } from '../../providers/credentials/proof-keys.ts'
import { CONFIG_OPTION, type Command, CommandError, type OptionValues, UsageError } from './command.ts'
import { GATEWAY_OPTIONS, GatewayClient, gatewayOf } from './gateway-client.ts'
import { configWords, print } from './outcome.ts'
import { counted, plain } from './terminal/text.ts'
import {
  type CheckedProof,
  checkProof,
  ProofFault,
  type ProofJwk,
  publicKeysOf,
} from './verify/check-proof.ts'
import { readSavedReply } from './verify/saved-reply.ts'

/** A reply has at most 64 MiB, and a stream contains it twice. */
const FILE_MAX_BYTES = 256 * 1024 * 1024

export const verify: Command = {
  name: 'verify',
  does: 'check the signed proof of placement in a saved reply; exit code 1 if it is invalid',
  argument: 'FILE',
  options: {
    keys: {
      value: 'FILE|URL',
      does: 'public keys: a file with a JWK set, or the address of a gateway; default: proof.keyFile of the configuration',
    },
    request: { value: 'FILE', does: 'also check that this is the body of the request' },
    key: GATEWAY_OPTIONS.key,
    json: { does: 'print the signed statement as one line of JSON' },
    config: CONFIG_OPTION,
  },
  async run(options, file) {
    const reply = readSavedReply(readInput(file, 'FILE').toString('utf8'))
    if (typeof reply === 'string') throw new CommandError(`${plain(file)}: ${reply}`)
    const body = typeof options['request'] === 'string' ? readInput(options['request'], '--request') : null
    const keys = await keysOf(options)
    const checked = await checkProof(reply, keys, body).catch((error: unknown) => {
      throw error instanceof ProofFault
        ? new CommandError(`${plain(file)}: the proof is invalid: ${error.message}`)
        : error
    })
    if (options['json'] === true) print(JSON.stringify(checked.statement))
    else for (const line of sentences(checked, reply.isStream, body !== null)) print(line)
    return 0
  },
}

function readInput(path: string, option: string): Buffer {
  try {
    if (statSync(path).size > FILE_MAX_BYTES) throw new UsageError(`${option}: ${plain(path)} is too large`)
    return readFileSync(path)
  } catch (error) {
    if (error instanceof UsageError) throw error
    throw new UsageError(`${option}: ${plain(path)} cannot be read (${systemCode(error) ?? 'unknown'})`)
  }
}

async function keysOf(options: OptionValues): Promise<readonly ProofJwk[]> {
  const { keys: source } = options
  if (typeof source !== 'string') return localKeys(options)
  const isUrl = /^https?:\/\//.test(source)
  const set = isUrl
    ? await fetchKeys(options, source)
    : parseOrNull(readInput(source, '--keys').toString('utf8'))
  const keys = publicKeysOf(set)
  if (keys === null || keys.length === 0) {
    throw new UsageError('--keys: expects a JWK set with Ed25519 keys, as returned by GET /v1/proof-keys')
  }
  return keys
}

function localKeys(options: OptionValues): readonly ProofJwk[] {
  const { keyFile } = loadConfig(configWords(options['config']), processEnvironment()).proof
  try {
    return readProofRing(keyFile).keys
  } catch (error) {
    if (!(error instanceof ProofKeyError)) throw error
    throw new UsageError(`proof.keyFile: ${error.message}; or pass the public keys with --keys FILE|URL`)
  }
}

/** @param url of a gateway, with or without the path of its keys */
function fetchKeys(options: OptionValues, url: string): Promise<unknown> {
  const port = gatewayOf({ ...options, url: url.replace(/\/proof-keys\/?$/, '') })
  return new GatewayClient(port).json('GET', '/proof-keys')
}

function parseOrNull(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return null
  }
}

/** The statement in plain words. */
function sentences({ statement, kid }: CheckedProof, isStream: boolean, hasRequest: boolean): string[] {
  const { answer, calls, gateway_region: region, iat, jti, model, provider, request } = statement
  return [
    `the proof is valid: ${plain(jti)}, signed ${new Date(iat * 1000).toISOString()} by key ${kid}`,
    `  answer   ${isStream && answer.of === 'reply' ? 'in the last event ' : ''}as it was signed: ${plain(model)} at ${plain(provider)}`,
    hasRequest
      ? '  request  as it was signed'
      : `  request  not checked (use --request FILE); its SHA-256 is ${plain(request.sha256)}`,
    `  terms    ${termsText(statement)}`,
    `  gateway  in region ${plain(region)}`,
    `  sent to  ${counted(calls.length, 'model call')}:`,
    ...calls.map(call => `    ${sentenceOf(call)}`),
  ]
}

function termsText({ asked }: ProofStatement): string {
  const region = asked.data_region === null ? 'any region' : `region ${plain(asked.data_region)}`
  const retention = asked.zdr ? 'zero retention' : 'any retention'
  return `${region}, ${retention}, data collection: ${plain(asked.data_collection)}`
}

function sentenceOf({ model, provider, region, zdr, trains, credential, status }: ProofCall): string {
  return [
    `${plain(model)} at ${plain(provider)}`,
    region === null ? 'promises no region' : `region ${plain(region)}`,
    zdr ? 'keeps no data' : 'may keep data',
    trains ? 'may train on it' : 'does not train on it',
    `credential ${plain(credential)}`,
    status === null ? 'no answer' : `status ${status}`,
  ].join(', ')
}
