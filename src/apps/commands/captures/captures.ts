/** `sluice captures`: lists, shows and deletes captures, in the store and data folder of the configuration. */

import { existsSync } from 'node:fs'
import { systemClock } from '../../../base/clock.ts'
import { capturesFolder, partPath, readNodeName, removeFiles } from '../../../features/captures/folder.ts'
import { openSealedFile, SealedFileError } from '../../../features/captures/sealed-file.ts'
import { loadConfig, processEnvironment } from '../../../process/config/config.ts'
import type { CaptureRecord } from '../../../protocol/management/captures.ts'
import { loadVaultRing, type VaultKey } from '../../../providers/credentials/vault-keys.ts'
import type { CapturePart } from '../../../storage/captures.ts'
import type { Store } from '../../../storage/store.ts'
import { CONFIG_OPTION, type Command, CommandError } from '../command.ts'
import { auditEntry, withStore } from '../keys.ts'
import { complain, configWords, print } from '../outcome.ts'
import { count, counted } from '../terminal/text.ts'
import { escapeControls, recordLines } from './shown-record.ts'

const ARGUMENT = 'ID'

export const capturesList: Command = {
  name: 'captures list',
  does: 'list the captures: whose requests they hold, how many, and until when',
  options: { config: CONFIG_OPTION },
  async run(options) {
    await withStore(options, async ({ captures }) => {
      const current = (await captures.list()).filter(isCurrent)
      if (current.length === 0) return print('There are no captures.')
      const rows = current.map(record => [
        record.id,
        isRunning(record) ? 'running' : 'ended',
        subjectOf(record),
        count(record.requests),
        count(record.leftOut),
        count(record.bytes),
        record.createdAt,
        record.expiresAt,
      ])
      const header = ['capture', 'state', 'of', 'requests', 'left out', 'bytes', 'begun', 'gone']
      for (const row of [header, ...rows]) print(row.join('\t'))
    })
    return 0
  },
}

export const capturesShow: Command = {
  name: 'captures show',
  does: 'show what a capture recorded on this node: requests, calls to providers, answers',
  argument: ARGUMENT,
  options: {
    json: { does: 'one line of JSON for each request' },
    config: CONFIG_OPTION,
  },
  async run(options, id) {
    const config = loadConfig(configWords(options['config']), processEnvironment())
    const { keys } = loadVaultRing(config)
    const folder = capturesFolder(config.storage.url)
    await withStore(options, async store => {
      const record = await findCapture(store, id)
      const parts = await store.captures.parts(record.id)
      if (options['json'] !== true) {
        print(
          `${record.id} of ${subjectOf(record)}: ${counted(record.requests, 'request')}, ${count(record.leftOut)} left out, ${count(record.bytes)} of ${count(record.maxBytes)} bytes`,
        )
      }
      const show = (line: string): void => {
        if (options['json'] === true) print(escapeControls(line))
        else for (const text of recordLines(line)) print(text)
      }
      const reader = new PartReader(folder, keys, record, show)
      for (const part of parts) await reader.read(part)
      if (parts.length === 0) complain(['nothing has been captured yet'])
    })
    return 0
  },
}

export const capturesDelete: Command = {
  name: 'captures delete',
  does: 'end a capture and delete what it recorded; other nodes follow within a minute',
  argument: ARGUMENT,
  options: { config: CONFIG_OPTION },
  async run(options, id) {
    const config = loadConfig(configWords(options['config']), processEnvironment())
    await withStore(options, async store => {
      const record = await findCapture(store, id)
      await store.audited(
        verbs => verbs.captures.remove(record.organizationId, record.id),
        isRemoved =>
          isRemoved
            ? {
                ...auditEntry('capture.delete', {
                  kind: 'capture',
                  id: record.id,
                  name: record.keyHash ?? record.workspaceId,
                }),
                organizationId: record.organizationId,
              }
            : null,
      )
      removeFiles(capturesFolder(config.storage.url), record.id)
      print(`${record.id} was deleted`)
    })
    return 0
  },
}

/** Reads the parts of a capture that are on this machine, and says which are not. */
export class PartReader {
  readonly #folder: string
  readonly #keys: readonly VaultKey[]
  readonly #record: CaptureRecord
  readonly #onLine: (line: string) => void
  readonly #node: string | null

  /** @param onLine gets each line of JSON: the record of a request, or the mark of a gap */
  constructor(
    folder: string,
    keys: readonly VaultKey[],
    record: CaptureRecord,
    onLine: (line: string) => void,
  ) {
    this.#folder = folder
    this.#keys = keys
    this.#record = record
    this.#onLine = onLine
    this.#node = readNodeName(folder)
  }

  /** @throws CommandError if the file cannot be decrypted */
  async read({ name, node, host, requests }: CapturePart): Promise<void> {
    const path = partPath(this.#folder, this.#record.id, name)
    if (node !== this.#node) {
      complain([
        `${counted(requests, 'request')} of this capture are on another node, ${node} on ${escapeControls(host)}: run this command there`,
      ])
      return
    }
    if (!existsSync(path)) {
      if (requests > 0) complain([`${path} is missing, with ${counted(requests, 'request')}`])
      return
    }
    try {
      await this.#read(path, name)
    } catch (error) {
      if (!(error instanceof SealedFileError)) throw error
      throw new CommandError(`${path} cannot be opened: ${error.message}`)
    }
  }

  async #read(path: string, name: string): Promise<void> {
    const { id, organizationId } = this.#record
    const decoder = new TextDecoder()
    let line = ''
    for await (const piece of openSealedFile(path, this.#keys, { captureId: id, organizationId, name })) {
      if (piece.kind === 'end') {
        if (!piece.isWhole)
          complain(['this part is incomplete: it is still being written, or its process was killed'])
        continue
      }
      line += decoder.decode(piece.bytes, { stream: true })
      const lines = line.split('\n')
      line = lines.pop() ?? ''
      for (const complete of lines) this.#onLine(complete)
    }
  }
}

/** @throws CommandError */
export async function findCapture({ captures }: Store, id: string): Promise<CaptureRecord> {
  const record = (await captures.list()).find(candidate => candidate.id === id && isCurrent(candidate))
  if (record === undefined) {
    throw new CommandError('there is no such capture; sluice captures list shows all captures')
  }
  return record
}

function isCurrent({ expiresAt }: CaptureRecord): boolean {
  return Date.parse(expiresAt) > systemClock.nowMs()
}

function isRunning({ endsAt, endedAt }: CaptureRecord): boolean {
  return endedAt === null && Date.parse(endsAt) > systemClock.nowMs()
}

function subjectOf({ keyHash, workspaceId }: CaptureRecord): string {
  return keyHash === null ? `workspace ${escapeControls(workspaceId ?? '')}` : `key ${keyHash}`
}
