/** The authors of models, the first part of public ids, by the provider that serves their models. Pure. */

/** Providers that serve authors of other names than their own slug. The first name is that of discovered models. */
const AUTHORS: Readonly<Record<string, readonly string[]>> = {
  alibaba: ['qwen', 'alibaba'],
  'google-ai-studio': ['google'],
  'google-vertex': ['google'],
  mistral: ['mistralai', 'mistral'],
  meta: ['meta-llama', 'meta'],
  seed: ['bytedance-seed', 'seed'],
  xai: ['x-ai', 'xai'],
}

/** The authors whose models a provider serves. */
export function authorsOf(slug: string): readonly string[] {
  return AUTHORS[slug] ?? [slug]
}
