/** `sluice batches`: lists the batches of a gateway, watches one until it ends, or cancels one. All over HTTP. */
import { systemClock } from '../../base/clock.ts'
import { processEnvironment } from '../../process/config/config.ts'
import { barDisplay, jsonDisplay, textDisplay } from './batches/display.ts'
import { type BatchWithResults, batchPath, listBatches, readBatch } from './batches/reading.ts'
import { ResultFile } from './batches/result-file.ts'
import { type BatchView, batchSummary, batchTable, batchView } from './batches/view.ts'
import { type BatchDisplay, watchBatch } from './batches/watching.ts'
import { CONFIG_OPTION, type Command, CommandError, type OptionValues, UsageError } from './command.ts'
import { GATEWAY_OPTIONS, GatewayClient, GatewayFault, gatewayOf } from './gateway-client.ts'
import { complain, EXIT_FAILED, print } from './outcome.ts'
import { stopSignal } from './stop-signal.ts'
import { drawsOver, ProgressBar } from './terminal/progress-bar.ts'
import { count, counted, duration, plain } from './terminal/text.ts'
import { waitingClock } from './waiting-clock.ts'

const DEFAULT_LIST_LIMIT = 20
const MAX_LIST_LIMIT = 100_000
/** The format of the gateway's batch ids. */
const BATCH_ID = /^batch_[A-Za-z0-9]{1,64}$/

const SHARED_OPTIONS = { ...GATEWAY_OPTIONS, config: CONFIG_OPTION }

export const batchesList: Command = {
  name: 'batches list',
  does: "list the batches in the key's workspace, newest first",
  options: {
    status: {
      value: 'STATUS',
      does: 'only batches with this status, or with one of several: in_progress,failed',
    },
    limit: { value: 'N', does: `the maximum number to list; default: ${DEFAULT_LIST_LIMIT}` },
    after: { value: 'ID', does: 'continue after this batch' },
    'created-after': {
      value: 'TIME',
      does: 'only batches created after this time, in Unix seconds or ISO 8601',
    },
    'created-before': { value: 'TIME', does: 'only batches created before this time' },
    json: { does: 'one line of JSON for each batch, as the API returns it' },
    ...SHARED_OPTIONS,
  },
  async run(options) {
    const limit = limitOf(options)
    const client = clientOf(options)
    const { batches, hasMore } = await listBatches(client, filterOf(options), limit)
    if (options['json'] === true) for (const { document } of batches) print(JSON.stringify(document))
    else if (batches.length === 0) complain(["no matching batches in this key's workspace"])
    else for (const text of batchTable(batches, systemClock.nowMs())) print(text)
    const last = batches.at(-1)
    if (hasMore && last !== undefined) complain([`there are more: continue with --after ${last.id}`])
    return 0
  },
}

export const batchesWatch: Command = {
  name: 'batches watch',
  does: 'show the progress of a batch until it ends; exit code 0 if it completed',
  argument: 'ID',
  options: {
    output: { value: 'FILE', does: 'write the results to this file at the end, as JSON Lines' },
    json: { does: 'one line of JSON for each change instead of text' },
    ...SHARED_OPTIONS,
  },
  async run(options, argument) {
    const id = batchId(argument)
    const client = clientOf(options)
    const output = typeof options['output'] === 'string' ? options['output'] : null
    const file = output === null ? null : await ResultFile.open(output)
    const stopping = stopSignal()
    const { signal } = stopping
    try {
      const read = (onBegin: (batch: BatchView) => void) =>
        readBatch(client, id, {
          file,
          signal,
          onResults(batch) {
            onBegin(batch)
            // Without a file, the results are only read to find out why some requests failed.
            return file === null && batch.failed === 0
          },
        })
      const display = displayOf(options)
      const lastState = await watchBatch({ id, read, display, clock: waitingClock, signal }).catch(
        nameUnknownBatch(id),
      )
      await file?.keep()
      printBatch(lastState, options, output)
      return lastState.batch.status === 'completed' ? 0 : EXIT_FAILED
    } catch (error) {
      await file?.drop()
      if (!signal.aborted) throw error
      const url = typeof options['url'] === 'string' ? ` --url ${client.url}` : ''
      complain([
        `${id} continues without being watched; watch it again with sluice batches watch ${id}${url}`,
        ...(output === null ? [] : [`${output} was not written`]),
      ])
      return stopping.exitCode
    } finally {
      stopping.end()
    }
  },
}

export const batchesCancel: Command = {
  name: 'batches cancel',
  does: 'cancel a batch; the results that it has so far are kept',
  argument: 'ID',
  options: { json: { does: 'print the batch as one line of JSON' }, ...SHARED_OPTIONS },
  async run(options, argument) {
    const id = batchId(argument)
    const client = clientOf(options)
    const printJson = ({ document }: BatchView) => print(JSON.stringify(document))
    try {
      const batch = batchView(
        await client.json('POST', `${batchPath(id)}/cancel`).catch(nameUnknownBatch(id)),
      )
      if (batch === null) throw client.notAGateway()
      if (options['json'] === true) printJson(batch)
      else for (const line of cancellationLines(batch)) print(line)
      return 0
    } catch (error) {
      if (!(error instanceof GatewayFault) || error.status !== 409) throw error
      const { batch } = await readBatch(client, id, { onResults: () => true }).catch(nameUnknownBatch(id))
      if (options['json'] === true) printJson(batch)
      complain([notCancelledText(batch, systemClock.nowMs())])
      return batch.status === 'cancelled' ? 0 : EXIT_FAILED
    }
  },
}

function cancellationLines(batch: BatchView): string[] {
  const { id, status, total, completed, failed } = batch
  const ended = completed + failed
  return [
    `${id} is ${status}: ${count(ended)} of ${counted(total, 'request')} have results, which are kept`,
    `sluice batches watch ${id} shows when it has ended`,
  ]
}

function notCancelledText(
  { id, status, isTerminal, completed, failed, total, finalizedMs }: BatchView,
  nowMs: number,
) {
  if (!isTerminal) return `${id} can no longer be cancelled: it is ${status}`
  const ago = finalizedMs === null ? '' : ` ${duration(nowMs - finalizedMs)} ago`
  const results = `${count(completed + failed)} of ${counted(total, 'request')} have results`
  return `${id} has already ended: ${status}${ago}, ${results}; there is nothing to cancel`
}

function printBatch(state: BatchWithResults, options: OptionValues, output: string | null): void {
  const { batch, results } = state
  if (options['json'] !== true) for (const text of batchSummary(batch, results, output)) print(text)
  else print(JSON.stringify({ ...batch.document, error_types: Object.fromEntries(results.errors) }))
}

function displayOf(options: OptionValues): BatchDisplay {
  const { stdout } = process
  const output = { line: print, note: (text: string) => complain([text]) }
  if (options['json'] === true) return jsonDisplay(output, waitingClock)
  const environment = processEnvironment()
  if (!drawsOver(stdout, environment)) return textDisplay(output, waitingClock)
  return barDisplay(new ProgressBar(stdout, environment), waitingClock)
}

function clientOf(options: OptionValues): GatewayClient {
  // A reader that stops early, such as head, is not an error.
  process.stdout.on('error', () => process.exit(EXIT_FAILED))
  return new GatewayClient(gatewayOf(options))
}

/** @throws UsageError without repeating the argument, which may be a secret or control the terminal */
function batchId(argument: string): string {
  if (BATCH_ID.test(argument)) return argument
  throw new UsageError(
    'ID: expects the id of a batch, such as batch_4fzn2Yc1; sluice batches list shows them',
  )
}

/** Adds the batch id to the error for an unknown batch. */
function nameUnknownBatch(id: string): (error: unknown) => never {
  return error => {
    if (!(error instanceof GatewayFault) || error.status !== 404) throw error
    throw new CommandError(`there is no batch ${id} in this key's workspace; sluice batches list shows them`)
  }
}

function limitOf({ limit }: OptionValues): number {
  if (limit === undefined) return DEFAULT_LIST_LIMIT
  const value = Number(limit)
  if (Number.isInteger(value) && value >= 1 && value <= MAX_LIST_LIMIT) return value
  throw new UsageError(`--limit: expects a number from 1 to ${count(MAX_LIST_LIMIT)}`)
}

function filterOf(options: OptionValues): URLSearchParams {
  const filter = new URLSearchParams()
  for (const name of ['after', 'created-after', 'created-before']) {
    const value = options[name]
    if (typeof value === 'string') filter.set(name.replace('-', '_'), value)
  }
  const { status } = options
  if (typeof status === 'string') for (const name of status.split(',')) filter.append('status', plain(name))
  return filter
}
