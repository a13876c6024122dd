/** The texts of a request as guardrails look at them, and the request with others in their places. Pure. Hot path. */
import type { Author } from '../../guardrails/rules.ts'
import { mapTexts } from '../../guardrails/texts/request-texts.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'

export interface RequestText {
  readonly text: string
  readonly who: Author
}

/** Every text of the request, in the order of `withTexts`. */
export function textsOf(request: ResponsesRequest): readonly RequestText[] {
  const texts: RequestText[] = []
  mapTexts(request, (text, who) => {
    texts.push({ text, who })
    return text
  })
  return texts
}

/** The request with these texts in place of its own; what does not change is shared with it. */
export function withTexts(request: ResponsesRequest, texts: readonly string[]): ResponsesRequest {
  let at = 0
  return mapTexts(request, text => texts[at++] ?? text)
}

/** The texts of the request in their places, those that an earlier form of it had as empty ones. */
export function unseenTexts(request: ResponsesRequest, before: ResponsesRequest): readonly RequestText[] {
  const seen = new Set<string>()
  mapTexts(before, text => {
    seen.add(text)
    return text
  })
  return textsOf(request).map(each => (seen.has(each.text) ? { text: '', who: each.who } : each))
}
