/** Converts a fetched page to readable text in the task pool: HTML, text, JSON, XML or PDF. Serve threads. */
import type { FetchedPage } from '../../../providers/upstream/pages/fetch-page.ts'
import { type GatewayTasks, PATIENT_WAIT_MS } from '../../tasks/pool/pool.ts'
import { TaskError } from '../../tasks/task.ts'

const PDF_TYPES: ReadonlySet<string> = new Set(['application/pdf', 'application/x-pdf'])

/** Media types of pages that can be read. */
export const PAGE_TYPES: readonly string[] = [
  'text/html',
  'application/xhtml+xml',
  'text/plain',
  'text/markdown',
  'text/csv',
  'text/xml',
  'application/xml',
  'application/rss+xml',
  'application/atom+xml',
  'application/json',
  'application/ld+json',
  'text/json',
  ...PDF_TYPES,
]

/** Ordinary pages take a tenth of a second. */
const READ_TIMEOUT_MS = 5_000
const MAX_PDF_PAGES = 500

interface PageReadOptions {
  readonly maxChars: number
  /** The API key on whose behalf the page is read: keys take turns. */
  readonly key: string
  readonly signal: AbortSignal
}

/** Rejects with a TaskError, or with the reason of the signal. */
export async function readPage(
  tasks: Pick<GatewayTasks, 'run'>,
  { bytes, type, charset, url }: FetchedPage,
  { maxChars, key, signal }: PageReadOptions,
): Promise<{ title: string; content: string }> {
  const options = { deadlineMs: READ_TIMEOUT_MS, waitMs: PATIENT_WAIT_MS, key, signal }
  if (PDF_TYPES.has(type)) {
    const { pages } = await tasks.run('pdf-text', { bytes, pagesMax: MAX_PDF_PAGES }, options)
    return { title: '', content: pages.join('\n\n') }
  }
  const input = { bytes, type, charset, url, maxChars }
  try {
    const { title, text } = await tasks.run('page-text', input, options)
    return { title, content: text }
  } catch (thrown) {
    signal.throwIfAborted()
    const isSlow =
      thrown instanceof TaskError && (thrown.outcome === 'timeout' || thrown.outcome === 'crashed')
    if (!isSlow) throw thrown
    const { title, text } = await tasks.run('page-text', { ...input, plain: true }, options)
    return { title, content: text }
  }
}
