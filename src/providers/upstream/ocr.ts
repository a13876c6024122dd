/**
 * Optical character recognition (OCR) by a provider: POST /ocr as defined by Mistral. Only the text and images of the
 * reply are used; clients never see the provider's error text. Serve threads.
 */
import { GatewayError, toGatewayError } from '../../base/errors.ts'
import type { Provider } from '../../protocol/provider.ts'
import { authHeaders } from './auth.ts'
import type { Transport } from './transport.ts'
import { wholeReply } from './whole-reply.ts'

/** One page of a document. */
interface OcrPage {
  readonly markdown: string
  /** Data URLs. */
  readonly images: readonly string[]
}

/**
 * Resolves to the pages of a document, given as a data URL.
 * Rejects with the reason of the signal, or a GatewayError: `invalid_request` if the document is at fault.
 */
export type Ocr = (document: string, signal: AbortSignal) => Promise<readonly OcrPage[]>

interface OcrDeps {
  readonly client: Transport
  readonly provider: Provider
  readonly model: string
  /** Limit until the reply begins, and between two chunks of it. */
  readonly timeoutMs: number
}

/** Eight pictures of a few megabytes in base64, and the text of some thousand pages. */
const ANSWER_MAX_BYTES = 48 * 1024 * 1024
/** Maximum number of pictures in one document, as documented. */
const IMAGES_MAX = 8
const IMAGE_URL = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}$/
/** Statuses about the key, the address or the load; the document is not at fault. */
const NO_DOCUMENT_FAULT: ReadonlySet<number> = new Set([401, 402, 403, 404, 405, 408, 429])

/** Creates the OCR function for one provider and model. */
export function createOcr({ client, provider, model, timeoutMs }: OcrDeps): Ocr {
  return async (document, signal) => {
    const { status, text } = await wholeReply(
      client,
      {
        url: new URL(`${provider.baseUrl}/ocr`),
        headers: {
          ...provider.headers,
          'content-type': 'application/json',
          ...authHeaders(provider.auth, provider.apiKey),
        },
        body: JSON.stringify({
          model,
          document: { type: 'document_url', document_url: document },
          include_image_base64: true,
          image_limit: IMAGES_MAX,
        }),
        headersTimeoutMs: timeoutMs,
        idleTimeoutMs: timeoutMs,
        egress: provider.egress,
      },
      { maxBytes: ANSWER_MAX_BYTES, signal },
    ).catch(error => {
      throw signal.aborted ? error : ocrFailure(provider, toGatewayError(error))
    })
    if (status >= 200 && status <= 299) return pagesIn(provider, text)
    if (status < 400 || status > 499 || NO_DOCUMENT_FAULT.has(status)) {
      const cause = new Error(`the OCR provider answered with status ${status}`)
      throw ocrFailure(
        provider,
        new GatewayError(status === 429 ? 'service_unavailable' : 'provider_unavailable', '', { cause }),
      )
    }
    throw new GatewayError('invalid_request', 'the OCR provider cannot read the document')
  }
}

/** The error in our own words, because the provider's text may quote the document. */
function ocrFailure({ name }: Provider, cause: GatewayError): GatewayError {
  const code =
    cause.code === 'upstream_timeout' || cause.code === 'service_unavailable'
      ? cause.code
      : 'provider_unavailable'
  const reason = cause.metadata?.['reason']
  return new GatewayError(code, 'The OCR provider failed', {
    metadata: { provider_name: name, ...(reason === undefined ? undefined : { reason }) },
    cause,
  })
}

function pagesIn(provider: Provider, text: string): OcrPage[] {
  let answer: unknown
  try {
    answer = JSON.parse(text)
  } catch {
    answer = null
  }
  const pages = field(answer, 'pages')
  if (!Array.isArray(pages))
    throw ocrFailure(provider, new GatewayError('provider_unavailable', 'The OCR provider sent no pages'))
  let remainingImages = IMAGES_MAX
  return pages.map(page => {
    const markdown = field(page, 'markdown')
    const images = imagesIn(page).slice(0, remainingImages)
    remainingImages -= images.length
    return { markdown: typeof markdown === 'string' ? markdown : '', images }
  })
}

/** The pictures on a page. Some replies contain bare base64 in place of a data URL. */
function imagesIn(page: unknown): string[] {
  const images = field(page, 'images')
  if (!Array.isArray(images)) return []
  return images
    .map(image => field(image, 'image_base64'))
    .filter(data => typeof data === 'string')
    .map(data => (data.startsWith('data:') ? data : `data:image/jpeg;base64,${data}`))
    .filter(url => IMAGE_URL.test(url))
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? (value as Readonly<Record<string, unknown>>)[name]
    : undefined
}
