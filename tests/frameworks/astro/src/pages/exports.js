import { download } from '../../limits.mjs';

export const prerender = false;
export const GET = ({ request, clientAddress }) => download(request, { address: clientAddress });
